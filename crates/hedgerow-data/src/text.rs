//! Pieces of files and messages, short enough to be repeated in a message.

/// Number of characters of a file's content that a message repeats at most.
pub const EXCERPT_LENGTH: usize = 40;

/// Number of characters of another library's message that a message repeats at most. Such a message
/// may contain pieces of the file too.
const FOREIGN_MESSAGE_LENGTH: usize = 160;

/// At most `most` characters of a text, with an ellipsis if more were cut off.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A number of things: `1 row`, `2 rows`. The noun is one whose plural ends in s.
pub fn counted(count: impl TryInto<u64> + std::fmt::Display + Copy, noun: &str) -> String {
    let plural = if count.try_into().is_ok_and(|count| count == 1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A piece of a file as a message repeats it: at most [`EXCERPT_LENGTH`] characters.
pub fn excerpt(text: &str) -> String {
    shortened(text, EXCERPT_LENGTH)
}

/// A message of another library, shortened to one line.
pub fn foreign_message(message: &str) -> String {
    shortened(message, FOREIGN_MESSAGE_LENGTH).replace(char::is_control, " ")
}

/// The most similar of these names as a question in parentheses; empty if none has at least this
/// similarity, from 0 to 1.
pub(crate) fn did_you_mean<'a>(
    wanted: &str,
    names: impl Iterator<Item = &'a str>,
    least_similarity: f64,
) -> String {
    let similarity =
        |name: &str| strsim::jaro_winkler(&name.to_lowercase(), &wanted.to_lowercase());
    let nearest = names.max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let nearest = nearest.filter(|name| similarity(name) >= least_similarity);
    nearest.map_or(String::new(), |name| format!(" (did you mean {:?}?)", excerpt(name)))
}

/// Most names that a message lists.
const LISTED_NAMES: usize = 10;
/// The similarity, from 0 to 1, from which a name is suggested.
const SUGGESTION_LIKENESS: f64 = 0.6;

/// The nearest name, and what there is.
pub fn listing(wanted: &str, names: &[String]) -> String {
    let mut there = did_you_mean(wanted, names.iter().map(String::as_str), SUGGESTION_LIKENESS);
    let listed: Vec<_> = names.iter().take(LISTED_NAMES).map(|name| excerpt(name)).collect();
    there += &format!("; there are {}", listed.join(", "));
    if names.len() > LISTED_NAMES {
        there += &format!(" and {} more", names.len() - LISTED_NAMES);
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_at_characters() {
        assert_eq!(shortened("éé", 2), "éé");
        assert_eq!(shortened("ééé", 2), "éé…");
        assert_eq!(excerpt(&"é".repeat(41)), "é".repeat(40) + "…");
    }

    #[test]
    fn foreign_messages_are_short_and_in_one_line() {
        assert_eq!(foreign_message("a\nb"), "a b");
        let long = foreign_message(&"é".repeat(500));
        assert_eq!(long, "é".repeat(FOREIGN_MESSAGE_LENGTH) + "…");
    }
}
