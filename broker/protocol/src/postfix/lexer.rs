//! Splits a template into text and the tokens of its actions.

use super::{Result, TemplateErrorCause as Cause, fail};

/// A piece of a template.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Action { at: usize, tokens: Vec<Spanned> },
}

/// A token and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spanned {
    pub(super) at: usize,
    /// Whether it follows the token before it without a space.
    pub(super) adjacent: bool,
    pub(super) token: Token,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Dot,
    /// `.Name`, without its dot.
    Field(String),
    /// `$name` with its dollar sign.
    Variable(String),
    Word(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Pipe,
    Declare,
    Assign,
    Comma,
    Open,
    Close,
}

impl Token {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Dot => "\".\"".to_owned(),
            Self::Field(name) => format!("\".{name}\""),
            Self::Variable(name) | Self::Word(name) => format!("{name:?}"),
            Self::Text(text) => format!("the text {text:?}"),
            Self::Integer(number) => format!("the number {number}"),
            Self::Float(number) => format!("the number {number}"),
            Self::Pipe => "\"|\"".to_owned(),
            Self::Declare => "\":=\"".to_owned(),
            Self::Assign => "\"=\"".to_owned(),
            Self::Comma => "\",\"".to_owned(),
            Self::Open => "\"(\"".to_owned(),
            Self::Close => "\")\"".to_owned(),
        }
    }
}

const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

pub(super) fn pieces(template: &str) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut lexer = Lexer { template, at: 0 };
    let mut trim_start = false;
    loop {
        let rest = lexer.rest();
        let begin = rest.find("{{");
        let mut text = &rest[..begin.unwrap_or(rest.len())];
        let action = begin.map(|begin| &rest[begin + 2..]);
        let trims = action.is_some_and(|a| a.starts_with('-') && a[1..].starts_with(SPACE));
        if trim_start {
            text = text.trim_start_matches(SPACE);
        }
        if trims {
            text = text.trim_end_matches(SPACE);
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        let Some(begin) = begin else {
            return Ok(pieces);
        };
        let at = lexer.at + begin;
        lexer.at = at + if trims { 4 } else { 2 };
        if lexer.rest().trim_start_matches(SPACE).starts_with("/*") {
            trim_start = lexer.comment(at)?;
            continue;
        }
        let tokens;
        (tokens, trim_start) = lexer.action(at)?;
        pieces.push(Piece::Action { at, tokens });
    }
}

struct Lexer<'a> {
    template: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.template[self.at..]
    }

    /// Passes over a comment. Tells whether it trims the text after it.
    fn comment(&mut self, begin: usize) -> Result<bool> {
        let Some(length) = self.rest().find("*/") else {
            return fail(begin, Cause::Unclosed { what: "a comment" });
        };
        self.at += length + 2;
        match self.end_of_action() {
            Some(trims) => Ok(trims),
            None => fail(
                self.at,
                Cause::Unclosed {
                    what: "the action of a comment",
                },
            ),
        }
    }

    /// Passes over the end of an action, if it is here. Tells whether it trims the text
    /// after it.
    fn end_of_action(&mut self) -> Option<bool> {
        let rest = self.rest();
        if rest.starts_with("}}") {
            self.at += 2;
            return Some(false);
        }
        let trims = rest.starts_with(SPACE) && rest[1..].starts_with("-}}");
        trims.then(|| {
            self.at += 4;
            true
        })
    }

    fn action(&mut self, begin: usize) -> Result<(Vec<Spanned>, bool)> {
        let mut tokens = Vec::new();
        let mut adjacent = false;
        loop {
            if let Some(trims) = self.end_of_action() {
                return Ok((tokens, trims));
            }
            let Some(first) = self.rest().chars().next() else {
                return fail(begin, Cause::Unclosed { what: "an action" });
            };
            if SPACE.contains(&first) {
                self.at += 1;
                adjacent = false;
                continue;
            }
            let at = self.at;
            let token = self.token(first)?;
            tokens.push(Spanned {
                at,
                adjacent,
                token,
            });
            adjacent = true;
        }
    }

    fn token(&mut self, first: char) -> Result<Token> {
        let rest = self.rest();
        let second = rest[first.len_utf8()..].chars().next();
        let digit_follows = second.is_some_and(|c| c.is_ascii_digit());
        let (token, length) = match first {
            '"' => return self.quoted(),
            '`' => return self.raw(),
            '\'' => return self.character(),
            '|' => (Token::Pipe, 1),
            ',' => (Token::Comma, 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '=' => (Token::Assign, 1),
            ':' if second == Some('=') => (Token::Declare, 2),
            '.' if !digit_follows => match word(&rest[1..]) {
                "" => (Token::Dot, 1),
                name => (Token::Field(name.to_owned()), 1 + name.len()),
            },
            '$' => {
                let length = 1 + word(&rest[1..]).len();
                (Token::Variable(rest[..length].to_owned()), length)
            }
            '0'..='9' | '+' | '-' | '.' => return self.number(),
            _ if is_word(first) => {
                let name = word(rest);
                (Token::Word(name.to_owned()), name.len())
            }
            _ => {
                let found = format!("{first:?}");
                return fail(
                    self.at,
                    Cause::Unexpected {
                        expected: "a value",
                        found,
                    },
                );
            }
        };
        self.at += length;
        Ok(token)
    }

    fn number(&mut self) -> Result<Token> {
        let rest = self.rest();
        let legal = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        let length = rest.find(|c| !legal(c)).unwrap_or(rest.len());
        // The end of an action that trims is no part of the number.
        let text = rest[..length].trim_end_matches('-');
        let digits = text.replace('_', "");
        let (negative, digits) = match digits.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, digits.strip_prefix('+').unwrap_or(&digits)),
        };
        let radix = match digits.get(..2) {
            Some("0x" | "0X") => 16,
            Some("0o" | "0O") => 8,
            Some("0b" | "0B") => 2,
            _ => 10,
        };
        let integer = match radix {
            10 => digits.parse::<i64>().ok(),
            _ => i64::from_str_radix(&digits[2..], radix).ok(),
        };
        let float = || digits.parse::<f64>().ok().filter(|_| is_float(digits));
        let token = if let Some(integer) = integer {
            Token::Integer(if negative { -integer } else { integer })
        } else if let Some(float) = float() {
            Token::Float(if negative { -float } else { float })
        } else {
            let found = format!("{text:?}");
            return fail(
                self.at,
                Cause::Unexpected {
                    expected: "a number",
                    found,
                },
            );
        };
        self.at += text.len();
        Ok(token)
    }

    fn raw(&mut self) -> Result<Token> {
        let inner = &self.rest()[1..];
        let Some(length) = inner.find('`') else {
            return fail(self.at, Cause::Unclosed { what: "a raw text" });
        };
        self.at += length + 2;
        Ok(Token::Text(inner[..length].to_owned()))
    }

    fn quoted(&mut self) -> Result<Token> {
        let text = self.until('"', "a text")?;
        String::from_utf8(text).map(Token::Text).or_else(|_| {
            fail(
                self.at,
                Cause::Unsupported {
                    what: "text that is not UTF-8".to_owned(),
                },
            )
        })
    }

    fn character(&mut self) -> Result<Token> {
        let begin = self.at;
        let text = self.until('\'', "a character")?;
        let text = String::from_utf8_lossy(&text);
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(character), None) => Ok(Token::Integer(u32::from(character).into())),
            _ => fail(
                begin,
                Cause::Unexpected {
                    expected: "one character",
                    found: format!("{text:?}"),
                },
            ),
        }
    }

    /// The bytes between two quotation marks, with their escapes replaced.
    fn until(&mut self, end: char, what: &'static str) -> Result<Vec<u8>> {
        let begin = self.at;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let Some(c) = self.rest().chars().next().filter(|c| *c != '\n') else {
                return fail(begin, Cause::Unclosed { what });
            };
            self.at += c.len_utf8();
            match c {
                '\\' => self.escape(&mut text)?,
                c if c == end => return Ok(text),
                c => text.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<()> {
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or_default();
        let number = |from: usize, digits: usize, radix: u32| {
            rest.get(from..from + digits)
                .and_then(|digits| u32::from_str_radix(digits, radix).ok())
        };
        let (bytes, length) = match first {
            'a' => (vec![0x07], 1),
            'b' => (vec![0x08], 1),
            'f' => (vec![0x0c], 1),
            'n' => (vec![b'\n'], 1),
            'r' => (vec![b'\r'], 1),
            't' => (vec![b'\t'], 1),
            'v' => (vec![0x0b], 1),
            '\\' | '"' | '\'' => (first.to_string().into_bytes(), 1),
            'x' => (byte(number(1, 2, 16)), 3),
            '0'..='7' => (byte(number(0, 3, 8)), 3),
            'u' => (scalar(number(1, 4, 16)), 5),
            'U' => (scalar(number(1, 8, 16)), 9),
            _ => (Vec::new(), 0),
        };
        if bytes.is_empty() {
            let found = format!("\"\\{first}\"");
            return fail(
                self.at,
                Cause::Unexpected {
                    expected: "an escape",
                    found,
                },
            );
        }
        text.extend(bytes);
        self.at += length;
        Ok(())
    }
}

fn byte(number: Option<u32>) -> Vec<u8> {
    number
        .and_then(|number| u8::try_from(number).ok())
        .into_iter()
        .collect()
}

fn scalar(number: Option<u32>) -> Vec<u8> {
    let character = number.and_then(char::from_u32);
    character.map_or_else(Vec::new, |c| c.to_string().into_bytes())
}

/// Whether a text begins as floats do: not with `inf`.
fn is_float(text: &str) -> bool {
    text.starts_with(|c: char| c == '.' || c.is_ascii_digit())
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}
