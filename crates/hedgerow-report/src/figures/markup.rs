//! Foreign text made harmless.

/// Text that can stand in HTML and XML, also between quotes. Control characters become blanks: XML
/// can't hold them.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Blanks for what XML can't hold.
pub(crate) fn printable(text: &str) -> String {
    let unfit = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(unfit, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out() {
        assert_eq!(escape("a<b>&\"'\u{0}\n"), "a&lt;b&gt;&amp;&quot;&#39;  ");
    }
}
