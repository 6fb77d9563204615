use std::borrow::Cow;

/// Changes paths on the way to a store, as its URL's arguments `find` and `replace` say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewriter {
    find: String,
    replace: String,
}

impl Rewriter {
    /// Makes a rewriter of the first occurrence of `find`. An empty `find` changes nothing.
    pub fn new(find: impl Into<String>, replace: impl Into<String>) -> Self {
        Self {
            find: find.into(),
            replace: replace.into(),
        }
    }

    /// Returns the path, relative to the store, under which the object of `path` is kept.
    pub fn rewrite<'a>(&self, path: &'a str) -> Cow<'a, str> {
        if self.find.is_empty() {
            return Cow::Borrowed(path);
        }
        match path.split_once(self.find.as_str()) {
            Some((before, after)) => Cow::Owned([before, &self.replace, after].concat()),
            None => Cow::Borrowed(path),
        }
    }
}

#[cfg(test)]
mod tests;
