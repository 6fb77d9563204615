//! Runs a template.

use time::OffsetDateTime;

use super::{
    MAX_STEPS, MAX_TEXT, PostfixContext, Result, TemplateErrorCause as Cause, fail, functions,
    parser::{Command, Node, Operand, Pipeline, Term},
    value::{Data, Object, Value},
};

pub(super) fn run(
    nodes: &[Node],
    context: &PostfixContext<'_>,
    time: OffsetDateTime,
) -> Result<String> {
    let root = Value::Object(Object::Root(Data {
        context: *context,
        time,
    }));
    let mut run = Run {
        text: String::new(),
        steps: 0,
        variables: vec![("$", root.clone())],
    };
    run.list(nodes, &root)?;
    Ok(run.text)
}

/// How a list of nodes ended.
#[derive(PartialEq)]
enum Flow {
    On,
    Break,
    Continue,
}

struct Run<'t, 'a> {
    text: String,
    steps: usize,
    variables: Vec<(&'t str, Value<'a>)>,
}

impl<'t, 'a> Run<'t, 'a> {
    fn list(&mut self, nodes: &'t [Node], dot: &Value<'a>) -> Result<Flow> {
        let outer = self.variables.len();
        for node in nodes {
            let flow = self.node(node, dot)?;
            if flow != Flow::On {
                self.variables.truncate(outer);
                return Ok(flow);
            }
        }
        self.variables.truncate(outer);
        Ok(Flow::On)
    }

    fn node(&mut self, node: &'t Node, dot: &Value<'a>) -> Result<Flow> {
        let outer = self.variables.len();
        match node {
            Node::Text(text) => self.write(0, text)?,
            Node::Action(pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                if pipeline.variables.is_empty() {
                    let text = functions::print(pipeline.at, &value)?;
                    self.write(pipeline.at, &text)?;
                }
            }
            Node::If {
                rebinds,
                pipeline,
                then,
                otherwise,
            } => {
                let value = self.pipeline(pipeline, dot)?;
                let flow = if value.is_true() {
                    self.list(then, if *rebinds { &value } else { dot })?
                } else {
                    self.list(otherwise, dot)?
                };
                self.variables.truncate(outer);
                return Ok(flow);
            }
            Node::Range {
                pipeline,
                body,
                otherwise,
            } => {
                self.range(pipeline, body, otherwise, dot)?;
                self.variables.truncate(outer);
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    fn range(
        &mut self,
        pipeline: &'t Pipeline,
        body: &'t [Node],
        otherwise: &'t [Node],
        dot: &Value<'a>,
    ) -> Result<()> {
        let value = self.commands(pipeline, dot)?;
        let kind = value.kind();
        let Some(items) = value.into_items() else {
            let cause = Cause::Unexpected {
                expected: "a list",
                found: kind.to_owned(),
            };
            return fail(pipeline.at, cause);
        };
        if items.is_empty() {
            // What follows `else` may end a loop around this one, but this one is done.
            return self.list(otherwise, dot).map(drop);
        }
        let outer = self.variables.len();
        for (index, item) in items.into_iter().enumerate() {
            self.step(pipeline.at)?;
            let index = Value::Integer(i128::try_from(index).unwrap_or_default());
            let values = match pipeline.variables.len() {
                0 | 1 => vec![item.clone()],
                _ => vec![index, item.clone()],
            };
            for (name, value) in pipeline.variables.iter().zip(values) {
                self.bind(name, value, pipeline.declares);
            }
            let flow = self.list(body, &item)?;
            self.variables.truncate(outer);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    fn bind(&mut self, name: &'t str, value: Value<'a>, declare: bool) {
        let known = self
            .variables
            .iter_mut()
            .rev()
            .find(|(other, _)| *other == name);
        match known {
            Some((_, slot)) if !declare => *slot = value,
            _ => self.variables.push((name, value)),
        }
    }

    fn pipeline(&mut self, pipeline: &'t Pipeline, dot: &Value<'a>) -> Result<Value<'a>> {
        let value = self.commands(pipeline, dot)?;
        for name in &pipeline.variables {
            self.bind(name, value.clone(), pipeline.declares);
        }
        Ok(value)
    }

    fn commands(&mut self, pipeline: &'t Pipeline, dot: &Value<'a>) -> Result<Value<'a>> {
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.command(command, dot, last)?);
        }
        Ok(last.unwrap_or(Value::Nil))
    }

    /// Runs a command, with the result of the command before it as its last argument.
    fn command(
        &mut self,
        command: &'t Command,
        dot: &Value<'a>,
        last: Option<Value<'a>>,
    ) -> Result<Value<'a>> {
        self.step(command.at)?;
        if let Term::Function(name) = &command.first.term {
            if let "and" | "or" = name.as_str() {
                return self.short_circuit(name == "or", command, dot, last);
            }
            let mut arguments = Vec::new();
            for operand in &command.arguments {
                arguments.push(self.operand(operand, dot)?);
            }
            arguments.extend(last);
            let value = functions::call(command.at, name, &arguments)?;
            return Self::fields(command.at, value, &command.first.fields);
        }
        let takes_arguments = !command.arguments.is_empty() || last.is_some();
        if !takes_arguments {
            return self.operand(&command.first, dot);
        }
        let Some((method, fields)) = command.first.fields.split_last() else {
            let found = "an argument".to_owned();
            return fail(
                command.at,
                Cause::Unexpected {
                    expected: "one value",
                    found,
                },
            );
        };
        let receiver = self.term(&command.first, dot)?;
        let receiver = Self::fields(command.at, receiver, fields)?;
        let mut arguments = Vec::new();
        for operand in &command.arguments {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(last);
        if let [Value::Text(argument)] = arguments.as_slice()
            && let Some(value) = receiver.call(method, argument)
        {
            return Ok(value);
        }
        let expected = match (receiver.has_method(method), receiver.field(method)) {
            (true, _) => "one text",
            (false, Some(_)) => "no arguments",
            (false, None) => return Self::unknown(command.at, &receiver, method),
        };
        fail(
            command.at,
            Cause::Arguments {
                function: method.clone(),
                expected,
            },
        )
    }

    /// `and` and `or`, which leave out what does not matter any more.
    fn short_circuit(
        &mut self,
        is_or: bool,
        command: &'t Command,
        dot: &Value<'a>,
        last: Option<Value<'a>>,
    ) -> Result<Value<'a>> {
        let mut value = None;
        for operand in &command.arguments {
            let next = self.operand(operand, dot)?;
            if next.is_true() == is_or {
                return Ok(next);
            }
            value = Some(next);
        }
        last.or(value).map_or_else(
            || {
                let (function, expected) = (if is_or { "or" } else { "and" }, "at least one value");
                fail(
                    command.at,
                    Cause::Arguments {
                        function: function.to_owned(),
                        expected,
                    },
                )
            },
            Ok,
        )
    }

    fn operand(&mut self, operand: &'t Operand, dot: &Value<'a>) -> Result<Value<'a>> {
        let value = self.term(operand, dot)?;
        Self::fields(operand.at, value, &operand.fields)
    }

    fn term(&mut self, operand: &'t Operand, dot: &Value<'a>) -> Result<Value<'a>> {
        Ok(match &operand.term {
            Term::Dot => dot.clone(),
            Term::Nil => Value::Nil,
            Term::Bool(value) => Value::Bool(*value),
            Term::Text(text) => Value::Text(text.clone()),
            Term::Integer(number) => Value::Integer((*number).into()),
            Term::Float(number) => Value::Float(*number),
            Term::Variable(name) => {
                let found = self.variables.iter().rev().find(|(other, _)| other == name);
                match found {
                    Some((_, value)) => value.clone(),
                    None => return fail(operand.at, Cause::UnknownVariable { name: name.clone() }),
                }
            }
            Term::Function(name) => functions::call(operand.at, name, &[])?,
            Term::Pipeline(pipeline) => {
                let outer = self.variables.len();
                let value = self.pipeline(pipeline, dot)?;
                self.variables.truncate(outer);
                value
            }
        })
    }

    fn fields(at: usize, mut value: Value<'a>, fields: &[String]) -> Result<Value<'a>> {
        for name in fields {
            value = match value.field(name) {
                Some(field) => field,
                None if value.has_method(name) => {
                    let (function, expected) = (name.clone(), "one text");
                    return fail(at, Cause::Arguments { function, expected });
                }
                None => return Self::unknown(at, &value, name),
            };
        }
        Ok(value)
    }

    fn unknown<T>(at: usize, value: &Value<'a>, name: &str) -> Result<T> {
        fail(
            at,
            Cause::UnknownField {
                of: value.kind(),
                name: name.to_owned(),
            },
        )
    }

    fn step(&mut self, at: usize) -> Result<()> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return fail(
                at,
                Cause::TooLarge {
                    what: "steps",
                    limit: MAX_STEPS,
                },
            );
        }
        Ok(())
    }

    fn write(&mut self, at: usize, text: &str) -> Result<()> {
        if self.text.len() + text.len() > MAX_TEXT {
            return fail(
                at,
                Cause::TooLarge {
                    what: "bytes of text",
                    limit: MAX_TEXT,
                },
            );
        }
        self.text.push_str(text);
        Ok(())
    }
}
