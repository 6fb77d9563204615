//! Makes a tree of a template's tokens.

use std::{collections::VecDeque, iter::Peekable, vec::IntoIter};

use super::{
    MAX_DEPTH, Result, TemplateErrorCause as Cause, fail, functions,
    lexer::{self, Piece, Spanned, Token},
};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Text(String),
    Action(Pipeline),
    /// Runs `then` if the pipeline is not empty, with it as the dot if `rebinds`.
    If {
        rebinds: bool,
        pipeline: Pipeline,
        then: Vec<Self>,
        otherwise: Vec<Self>,
    },
    Range {
        pipeline: Pipeline,
        body: Vec<Self>,
        otherwise: Vec<Self>,
    },
    Break,
    Continue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pipeline {
    pub(super) at: usize,
    pub(super) variables: Vec<String>,
    /// Whether `variables` are declared, or only assigned.
    pub(super) declares: bool,
    pub(super) commands: Vec<Command>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Command {
    pub(super) at: usize,
    pub(super) first: Operand,
    pub(super) arguments: Vec<Operand>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operand {
    pub(super) at: usize,
    pub(super) term: Term,
    /// Fields or methods of the term, one of another.
    pub(super) fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Dot,
    Nil,
    Bool(bool),
    Text(String),
    Integer(i64),
    Float(f64),
    Variable(String),
    Function(String),
    Pipeline(Pipeline),
}

pub(super) fn parse(template: &str) -> Result<Vec<Node>> {
    let pieces = VecDeque::from(lexer::pieces(template)?);
    let mut parser = Parser {
        pieces,
        end: template.len(),
        variables: vec!["$".to_owned()],
    };
    let (nodes, end) = parser.list(0, false)?;
    match end {
        None => Ok(nodes),
        Some(end) => unexpected(end.at, "a value", format!("{:?}", end.word)),
    }
}

/// The word that ended a list of nodes.
struct End {
    at: usize,
    word: &'static str,
    /// What follows `else`: another condition.
    rest: Tokens,
}

type Tokens = Peekable<IntoIter<Spanned>>;

struct Parser {
    pieces: VecDeque<Piece>,
    /// Length of the template.
    end: usize,
    /// Declared variables, innermost last.
    variables: Vec<String>,
}

fn unexpected<T>(at: usize, expected: &'static str, found: String) -> Result<T> {
    fail(at, Cause::Unexpected { expected, found })
}

impl Parser {
    fn list(&mut self, depth: usize, in_range: bool) -> Result<(Vec<Node>, Option<End>)> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.pop_front() {
            let (at, tokens) = match piece {
                Piece::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Piece::Action { at, tokens } => (at, tokens),
            };
            if depth >= MAX_DEPTH {
                return fail(
                    at,
                    Cause::TooLarge {
                        what: "levels",
                        limit: MAX_DEPTH,
                    },
                );
            }
            let mut tokens = tokens.into_iter().peekable();
            let keyword = match tokens.peek().map(|spanned| &spanned.token) {
                Some(Token::Word(word)) => word.clone(),
                _ => String::new(),
            };
            let known = ["if", "with", "range", "else", "end", "break", "continue"];
            if known.contains(&keyword.as_str()) {
                tokens.next();
            }
            match keyword.as_str() {
                "if" | "with" => nodes.push(self.condition(&keyword, at, tokens, depth, in_range)?),
                "range" => nodes.push(self.range(at, tokens, depth)?),
                "else" => {
                    return Ok((
                        nodes,
                        Some(End {
                            at,
                            word: "else",
                            rest: tokens,
                        }),
                    ));
                }
                "end" => {
                    finish(&mut tokens)?;
                    return Ok((
                        nodes,
                        Some(End {
                            at,
                            word: "end",
                            rest: tokens,
                        }),
                    ));
                }
                "break" | "continue" if in_range => {
                    finish(&mut tokens)?;
                    let is_break = keyword == "break";
                    nodes.push(if is_break {
                        Node::Break
                    } else {
                        Node::Continue
                    });
                }
                "break" | "continue" => {
                    return unexpected(at, "a value outside of range", format!("{keyword:?}"));
                }
                "define" | "template" | "block" => {
                    return fail(
                        at,
                        Cause::Unsupported {
                            what: format!("{keyword:?}"),
                        },
                    );
                }
                _ => {
                    let pipeline = self.pipeline(&mut tokens, at, depth, 1)?;
                    finish(&mut tokens)?;
                    nodes.push(Node::Action(pipeline));
                }
            }
        }
        Ok((nodes, None))
    }

    fn condition(
        &mut self,
        keyword: &str,
        at: usize,
        mut tokens: Tokens,
        depth: usize,
        in_range: bool,
    ) -> Result<Node> {
        let outer = self.variables.len();
        let pipeline = self.pipeline(&mut tokens, at, depth, 1)?;
        finish(&mut tokens)?;
        let (then, end) = self.list(depth + 1, in_range)?;
        let Some(mut end) = end else {
            return self.unclosed(at);
        };
        let mut otherwise = Vec::new();
        if end.word == "else" {
            let next = end
                .rest
                .next_if(|spanned| matches!(&spanned.token, Token::Word(word) if word == keyword));
            if next.is_some() {
                // `else if` has no end of its own.
                if depth + 1 >= MAX_DEPTH {
                    return fail(
                        at,
                        Cause::TooLarge {
                            what: "levels",
                            limit: MAX_DEPTH,
                        },
                    );
                }
                otherwise.push(self.condition(keyword, end.at, end.rest, depth + 1, in_range)?);
            } else {
                finish(&mut end.rest)?;
                otherwise = self.until_end(at, depth, in_range)?;
            }
        }
        self.variables.truncate(outer);
        Ok(Node::If {
            rebinds: keyword == "with",
            pipeline,
            then,
            otherwise,
        })
    }

    fn range(&mut self, at: usize, mut tokens: Tokens, depth: usize) -> Result<Node> {
        let outer = self.variables.len();
        let pipeline = self.pipeline(&mut tokens, at, depth, 2)?;
        finish(&mut tokens)?;
        let (body, end) = self.list(depth + 1, true)?;
        let Some(mut end) = end else {
            return self.unclosed(at);
        };
        let mut otherwise = Vec::new();
        if end.word == "else" {
            finish(&mut end.rest)?;
            otherwise = self.until_end(at, depth, false)?;
        }
        self.variables.truncate(outer);
        Ok(Node::Range {
            pipeline,
            body,
            otherwise,
        })
    }

    /// The nodes of an `else`.
    fn until_end(&mut self, at: usize, depth: usize, in_range: bool) -> Result<Vec<Node>> {
        match self.list(depth + 1, in_range)? {
            (nodes, Some(End { word: "end", .. })) => Ok(nodes),
            (_, Some(end)) => unexpected(end.at, "\"end\"", format!("{:?}", end.word)),
            (_, None) => self.unclosed(at),
        }
    }

    fn unclosed<T>(&self, at: usize) -> Result<T> {
        fail(at.min(self.end), Cause::Unclosed { what: "a block" })
    }

    /// A pipeline that may declare up to `max` variables.
    fn pipeline(
        &mut self,
        tokens: &mut Tokens,
        at: usize,
        depth: usize,
        max: usize,
    ) -> Result<Pipeline> {
        let mut pipeline = Pipeline {
            at,
            variables: Vec::new(),
            declares: false,
            commands: Vec::new(),
        };
        self.declaration(tokens, &mut pipeline, max)?;
        loop {
            let command = self.command(tokens, at, depth)?;
            let runs =
                !command.first.fields.is_empty() || matches!(command.first.term, Term::Function(_));
            if !pipeline.commands.is_empty() && !runs {
                let found = "a plain value".to_owned();
                return unexpected(command.at, "a function after \"|\"", found);
            }
            pipeline.commands.push(command);
            if tokens
                .next_if(|spanned| spanned.token == Token::Pipe)
                .is_none()
            {
                break;
            }
        }
        if pipeline.declares {
            self.variables.extend(pipeline.variables.iter().cloned());
        }
        Ok(pipeline)
    }

    fn declaration(&self, tokens: &mut Tokens, pipeline: &mut Pipeline, max: usize) -> Result<()> {
        let mut ahead = tokens.clone();
        let mut names = Vec::new();
        while names.len() < max
            && let Some(Spanned {
                token: Token::Variable(name),
                ..
            }) = ahead.peek().cloned()
        {
            ahead.next();
            names.push(name);
            match ahead.next().map(|spanned| spanned.token) {
                Some(Token::Comma) => {}
                Some(token @ (Token::Declare | Token::Assign)) => {
                    pipeline.declares = token == Token::Declare;
                    for name in &names {
                        if !pipeline.declares && !self.variables.contains(name) {
                            let name = name.clone();
                            return fail(pipeline.at, Cause::UnknownVariable { name });
                        }
                    }
                    pipeline.variables = names;
                    *tokens = ahead;
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn command(&mut self, tokens: &mut Tokens, at: usize, depth: usize) -> Result<Command> {
        let at = tokens.peek().map_or(at, |spanned| spanned.at);
        let Some(first) = self.operand(tokens, depth)? else {
            let found = tokens
                .peek()
                .map_or_else(|| "nothing".to_owned(), |next| next.token.describe());
            return unexpected(at, "a value", found);
        };
        if first.term == Term::Nil {
            return unexpected(at, "a value", "\"nil\"".to_owned());
        }
        let mut arguments = Vec::new();
        while let Some(operand) = self.operand(tokens, depth)? {
            arguments.push(operand);
        }
        Ok(Command {
            at,
            first,
            arguments,
        })
    }

    fn operand(&mut self, tokens: &mut Tokens, depth: usize) -> Result<Option<Operand>> {
        let ends = |spanned: &&Spanned| {
            !matches!(
                spanned.token,
                Token::Pipe | Token::Close | Token::Comma | Token::Declare | Token::Assign
            )
        };
        let Some(at) = tokens.peek().filter(ends).map(|spanned| spanned.at) else {
            return Ok(None);
        };
        let Some(spanned) = tokens.next() else {
            return Ok(None);
        };
        let mut fields = Vec::new();
        let term = match spanned.token {
            Token::Dot => Term::Dot,
            Token::Field(name) => {
                fields.push(name);
                Term::Dot
            }
            Token::Text(text) => Term::Text(text),
            Token::Integer(number) => Term::Integer(number),
            Token::Float(number) => Term::Float(number),
            Token::Variable(name) if self.variables.contains(&name) => Term::Variable(name),
            Token::Variable(name) => return fail(at, Cause::UnknownVariable { name }),
            Token::Word(word) => word_term(at, word)?,
            Token::Open => {
                if depth >= MAX_DEPTH {
                    return fail(
                        at,
                        Cause::TooLarge {
                            what: "levels",
                            limit: MAX_DEPTH,
                        },
                    );
                }
                let pipeline = self.pipeline(tokens, at, depth + 1, 1)?;
                match tokens.next() {
                    Some(Spanned {
                        token: Token::Close,
                        ..
                    }) => Term::Pipeline(pipeline),
                    Some(next) => return unexpected(next.at, "\")\"", next.token.describe()),
                    None => {
                        return fail(
                            at,
                            Cause::Unclosed {
                                what: "a parenthesis",
                            },
                        );
                    }
                }
            }
            Token::Pipe | Token::Declare | Token::Assign | Token::Comma | Token::Close => {
                return Ok(None);
            }
        };
        let is_field =
            |spanned: &Spanned| spanned.adjacent && matches!(spanned.token, Token::Field(_));
        while let Some(next) = tokens.next_if(is_field) {
            if let Token::Field(name) = next.token {
                fields.push(name);
            }
        }
        Ok(Some(Operand { at, term, fields }))
    }
}

fn word_term(at: usize, word: String) -> Result<Term> {
    match word.as_str() {
        "true" => Ok(Term::Bool(true)),
        "false" => Ok(Term::Bool(false)),
        "nil" => Ok(Term::Nil),
        _ if functions::is_known(&word) => Ok(Term::Function(word)),
        "call" | "html" | "js" => fail(
            at,
            Cause::Unsupported {
                what: format!("function {word:?}"),
            },
        ),
        _ => fail(at, Cause::UnknownFunction { name: word }),
    }
}

fn finish(tokens: &mut Tokens) -> Result<()> {
    match tokens.next() {
        None => Ok(()),
        Some(next) => unexpected(next.at, "the end of the action", next.token.describe()),
    }
}
