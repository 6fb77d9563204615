//! What is printed, and how. Nothing else writes to standard output.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Cell, CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use serde::Serialize;

/// Form of a result that is short enough to be told in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ResultFormat {
    /// A line for people
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes `value` to standard output as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    print(&text)?;
    Ok(())
}

/// Writes a line to standard error. That nobody may read it is no reason to stop.
pub(crate) fn complain(line: &str) {
    let written = writeln!(io::stderr().lock(), "{line}");
    drop(written);
}

/// Reports whether a person may be looking at standard error.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Returns a table in a frame, as wide as its content.
pub(crate) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let separator = if rows.is_empty() {
        LineStyle::none()
    } else {
        FRAME.header_separator
    };
    let mut table = Table::new();
    table
        .load_style(FRAME.header_separator(separator))
        .set_header(header)
        .add_rows(rows);
    let widths = table.column_max_content_widths();
    let centred = |(text, width): (&String, u16)| {
        // Of an odd number of spaces, the reference has the last one on the right.
        let spaces = usize::from(width).saturating_sub(text.chars().count());
        let text = format!("{text}{}", " ".repeat(spaces % 2));
        Cell::new_owned(text).set_alignment(CellAlignment::Center)
    };
    let header: Vec<_> = header.iter().zip(widths).map(centred).collect();
    table.set_header(header);
    let mut text = table.to_string();
    text.push('\n');
    text
}

/// Returns a number of bytes as people read it: `100 B`, `3.0 KiB`, `12 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    // Tenths, rounded up as in the reference's tables.
    let mut unit = 0;
    let mut size = to_f64(count) / 1024.0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let unit = UNITS[unit];
    if size < 9.95 {
        format!("{size:.1} {unit}")
    } else {
        format!("{size:.0} {unit}")
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is rounded for people")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Returns how long ago something was, as people say it: `18 seconds ago`.
pub(crate) fn ago(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0 => return "now".to_owned(),
        1..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        86_400..604_800 => (seconds / 86_400, "day"),
        604_800..2_592_000 => (seconds / 604_800, "week"),
        2_592_000..31_104_000 => (seconds / 2_592_000, "month"),
        _ => (seconds / 31_104_000, "year"),
    };
    if count == 1 {
        format!("1 {unit} ago")
    } else {
        format!("{count} {unit}s ago")
    }
}

/// Borders of a table.
const FRAME: TableStyle = TableStyle::new()
    .top_border(LineStyle::new(
        '\u{250c}', '\u{2500}', '\u{252c}', '\u{2510}',
    ))
    .header_lines(ContentLineStyle::new('\u{2502}', '\u{2502}', '\u{2502}'))
    .header_separator(LineStyle::new(
        '\u{251c}', '\u{2500}', '\u{253c}', '\u{2524}',
    ))
    .content_lines(ContentLineStyle::new('\u{2502}', '\u{2502}', '\u{2502}'))
    .bottom_border(LineStyle::new(
        '\u{2514}', '\u{2500}', '\u{2534}', '\u{2518}',
    ));

#[cfg(test)]
mod tests;
