//! In what two learning configurations differ.

use serde_json::Value;

/// The first difference between what is stored and what is wanted, in words; none if they say the
/// same.
pub(super) fn first(stored: &str, wanted: &str) -> Option<String> {
    if stored == wanted {
        return None;
    }
    match (serde_json::from_str(stored), serde_json::from_str(wanted)) {
        (Ok(stored), Ok(wanted)) => between("learning", &stored, &wanted),
        _ => Some("its configuration can't be read".to_owned()),
    }
}

fn between(path: &str, stored: &Value, wanted: &Value) -> Option<String> {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => {
            let keys = stored.keys().chain(wanted.keys().filter(|key| !stored.contains_key(*key)));
            let none = Value::Null;
            keys.into_iter().find_map(|key| {
                let [stored, wanted] =
                    [stored, wanted].map(|table| table.get(key).unwrap_or(&none));
                between(&format!("{path}.{key}"), stored, wanted)
            })
        }
        (Value::Array(stored), Value::Array(wanted)) if stored.len() == wanted.len() => {
            let mut pairs = stored.iter().zip(wanted).enumerate();
            pairs.find_map(|(at, (stored, wanted))| {
                between(&format!("{path}[{at}]"), stored, wanted)
            })
        }
        (stored, wanted) if stored == wanted => None,
        (stored, wanted) => {
            Some(format!("{path} is {} there and {} here", short(stored), short(wanted)))
        }
    }
}

/// Long values say little.
fn short(value: &Value) -> String {
    const MAX_SHOWN: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let stored =
            r#"{"method": "mk-ofl", "setup": {"ridge": 0.01, "mk": [1, 2]}, "columns": ["a"]}"#;
        for (wanted, difference) in [
            (
                stored.replace("0.01", "0.02"),
                Some("learning.setup.ridge is 0.01 there and 0.02 here"),
            ),
            (
                stored.replace("[1, 2]", "[1, 3]"),
                Some("learning.setup.mk[1] is 2 there and 3 here"),
            ),
            (
                stored.replace("[\"a\"]", "[]"),
                Some("learning.columns is [\"a\"] there and [] here"),
            ),
            (
                stored.replace("\"method\": \"mk-ofl\", ", ""),
                Some("learning.method is \"mk-ofl\" there and null here"),
            ),
            (
                stored.replace("mk-ofl", "naive"),
                Some("learning.method is \"mk-ofl\" there and \"naive\" here"),
            ),
            (stored.replace(' ', ""), None),
            (stored.to_owned(), None),
            (stored[1..].to_owned(), Some("its configuration can't be read")),
        ] {
            assert_eq!(first(stored, &wanted).as_deref(), difference);
        }
        let long = first("{}", &format!("{{\"a\": {:?}}}", "ä".repeat(1000))).unwrap();
        assert!(long.len() < 200, "{long}");
    }
}
