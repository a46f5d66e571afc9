//! How figures are printed.

/// Nanoseconds.
pub fn millis(nanos: u64) -> String {
    format!("{:.2} ms", nanos as f64 / 1e6)
}

pub fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The heading of a Markdown table.
pub fn heading(columns: &str) {
    println!("\n| {columns} |\n|{}", "---|".repeat(columns.split('|').count()));
}
