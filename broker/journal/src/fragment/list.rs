//! Which fragments of an index one page of a listing has.

use gazette_protocol::{Fragment, FragmentsRequest};

use super::{CoverSet, index::Source};

/// Fragments of a page when the request names no limit.
pub const PAGE_LIMIT_DEFAULT: usize = 1000;

/// A page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its fragments, in order.
    pub fragments: Vec<Fragment>,
    /// Where the next page begins, or zero if this was the last.
    pub next_page_token: i64,
}

/// The page that `request` asks for.
///
/// A token is the begin of the first fragment to look at. Both bounds of the modification time
/// are inclusive. Local fragments have none: they are listed if there is no upper bound.
pub fn list_fragments<L>(set: &CoverSet<Source<L>>, request: &FragmentsRequest) -> Page {
    let limit = match usize::try_from(request.page_limit) {
        Ok(limit) if limit > 0 => limit,
        _ => PAGE_LIMIT_DEFAULT,
    };
    let mut page = Page {
        fragments: Vec::new(),
        next_page_token: 0,
    };
    for (fragment, _) in set.iter_from(request.next_page_token) {
        if page.fragments.len() == limit {
            page.next_page_token = fragment.begin;
            break;
        }
        if is_selected(fragment, request) {
            page.fragments.push(fragment.clone());
        }
    }
    page
}

fn is_selected(fragment: &Fragment, request: &FragmentsRequest) -> bool {
    let FragmentsRequest {
        begin_mod_time,
        end_mod_time,
        ..
    } = *request;
    if fragment.mod_time == 0 {
        return end_mod_time == 0;
    }
    let is_before_end = end_mod_time == 0 || fragment.mod_time <= end_mod_time;
    begin_mod_time <= fragment.mod_time && is_before_end
}

#[cfg(test)]
mod tests;
