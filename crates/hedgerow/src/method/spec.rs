//! [`MethodSpec`]: which method a plan runs, as it is written.

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{MethodInfo, find};

/// A method by its name, and the kernel of a method that uses a single one.
///
/// ```
/// use hedgerow::method::MethodSpec;
///
/// let spec: MethodSpec = "sk:3".parse()?; // the third kernel
/// assert_eq!((spec.name(), spec.kernel(), spec.to_string()), ("sk", Some(2), "sk:3".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MethodSpec {
    name: Cow<'static, str>,
    kernel: Option<usize>,
}

/// A text that names no method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither the name of a method nor NAME:N with a kernel N from 1")]
pub struct NotAMethod {
    text: String,
}

impl MethodSpec {
    /// The short name; that of a method outside this crate as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel, from 0.
    pub fn kernel(&self) -> Option<usize> {
        self.kernel
    }

    /// The same method with this kernel, from 0.
    #[must_use]
    pub fn with_kernel(self, kernel: usize) -> Self {
        Self { kernel: Some(kernel), ..self }
    }

    fn named(name: String) -> Self {
        let name = find(&name).map_or(Cow::Owned(name), |info| Cow::Borrowed(info.name));
        Self { name, kernel: None }
    }
}

impl Default for MethodSpec {
    /// MK-OFL.
    fn default() -> Self {
        Self::from(&super::mk_ofl::INFO)
    }
}

impl From<&'static MethodInfo> for MethodSpec {
    fn from(info: &'static MethodInfo) -> Self {
        Self { name: Cow::Borrowed(info.name), kernel: None }
    }
}

impl FromStr for MethodSpec {
    type Err = NotAMethod;

    fn from_str(text: &str) -> Result<Self, NotAMethod> {
        let wrong = || NotAMethod { text: text.to_owned() };
        let (name, kernel) = match text.split_once(':') {
            None => (text, None),
            Some((name, number)) => {
                let number: usize = number.parse().map_err(|_| wrong())?;
                (name, Some(number.checked_sub(1).ok_or_else(wrong)?))
            }
        };
        if name.is_empty() {
            return Err(wrong());
        }
        Ok(Self { kernel, ..Self::named(name.to_owned()) })
    }
}

impl fmt::Display for MethodSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kernel {
            None => f.write_str(&self.name),
            Some(kernel) => write!(f, "{}:{}", self.name, kernel + 1),
        }
    }
}

/// As stored plans have it: `"mk-ofl"`, or `{"sk-ofl": {"kernel": 3}}` with kernels from 0.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Name(String),
    WithKernel(alloc::collections::BTreeMap<String, StoredKernel>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKernel {
    kernel: usize,
}

impl Serialize for MethodSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = find(&self.name).and_then(|info| info.aliases.first());
        let name = stored.map_or_else(|| self.name.to_string(), |alias| (*alias).to_owned());
        match self.kernel {
            None => Stored::Name(name),
            Some(kernel) => Stored::WithKernel([(name, StoredKernel { kernel })].into()),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MethodSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Stored::deserialize(deserializer)? {
            Stored::Name(name) => Ok(Self::named(name)),
            Stored::WithKernel(map) => match map.into_iter().next() {
                Some((name, StoredKernel { kernel })) => Ok(Self::named(name).with_kernel(kernel)),
                None => Err(serde::de::Error::custom("a method has no name")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_stored_plans_are_read_and_written_alike() {
        for (text, stored) in [
            ("mk", r#""mk-ofl""#),
            ("sk:4", r#"{"sk-ofl":{"kernel":3}}"#),
            ("linear-newton", r#""linear-newton""#),
            ("emk", r#""em-kofl""#),
            ("outside", r#""outside""#),
        ] {
            let spec: MethodSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            assert_eq!(serde_json::to_string(&spec).unwrap(), stored);
            assert_eq!(serde_json::from_str::<MethodSpec>(stored).unwrap(), spec);
        }
        for bad in ["", ":3", "sk:0", "sk:x", "sk:"] {
            assert!(bad.parse::<MethodSpec>().is_err(), "{bad}");
        }
        for bad in ["{}", "3", r#"{"sk-ofl":{}}"#, r#"{"sk-ofl":{"kernel":1,"k":2}}"#] {
            assert!(serde_json::from_str::<MethodSpec>(bad).is_err(), "{bad}");
        }
    }
}
