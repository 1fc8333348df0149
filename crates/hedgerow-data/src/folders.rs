//! The folders of data sets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the folder of data sets.
pub const DATA_DIR_VARIABLE: &str = "HEDGEROW_DATA_DIR";
/// The variable with the folder for caches.
pub const CACHE_DIR_VARIABLE: &str = "HEDGEROW_CACHE_DIR";

/// Where data sets are looked for: the folder that the user names, the one of the environment, and
/// the cache.
pub fn data_folders(named: Option<&Path>) -> Vec<PathBuf> {
    let of_environment = non_empty(std::env::var_os(DATA_DIR_VARIABLE));
    named.map(Path::to_owned).into_iter().chain(of_environment).chain(fetched_data()).collect()
}

/// Where data sets are fetched to; `None` where there is no home.
pub fn fetched_data() -> Option<PathBuf> {
    cache_folder(|name| std::env::var_os(name)).map(|cache| cache.join("data"))
}

fn cache_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| non_empty(variable(name));
    if let Some(cache) = folder(CACHE_DIR_VARIABLE) {
        return Some(cache);
    }
    let home = || folder("HOME");
    let base = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library").join("Caches"))
    } else {
        // A relative folder is to be ignored, as its specification says.
        let of_desktop = folder("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        of_desktop.or_else(|| home().map(|home| home.join(".cache")))
    };
    base.map(|base| base.join("hedgerow"))
}

fn non_empty(value: Option<OsString>) -> Option<PathBuf> {
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        cache_folder(|name| value(name).map(OsString::from))
    }

    #[test]
    fn the_cache_is_where_the_user_says() {
        let own =
            cache(&[(CACHE_DIR_VARIABLE, "/own"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/a")]);
        assert_eq!(own, Some("/own".into()));
        assert_eq!(cache(&[]), None);
    }

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn or_where_such_things_are_kept() {
        let home = ("HOME", "/home/a");
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/xdg"), home]), Some("/xdg/hedgerow".into()));
        for ignored in ["", "relative"] {
            assert_eq!(
                cache(&[("XDG_CACHE_HOME", ignored), home]),
                Some("/home/a/.cache/hedgerow".into())
            );
        }
    }

    #[test]
    fn a_named_folder_comes_first() {
        assert_eq!(data_folders(Some(Path::new("/mine")))[0], Path::new("/mine"));
    }
}
