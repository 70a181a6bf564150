//! Where a program is, or why it cannot be run, in words that say what to do.
//!
//! Looks as the system does: a name with a slash is a path, any other is looked for in `PATH`. Runs nothing.

use std::{
    io::{Error, ErrorKind},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::config::env;

/// The program's file, if it can be run as far as can be seen.
pub(super) fn of(program: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = PathBuf::from(program);
        return match fault(&path) {
            None => Ok(path),
            Some(why) => Err(why),
        };
    }
    let places = env::search_path().into_iter().map(|folder| folder.join(program));
    let there: Vec<_> = places.filter(|path| path.is_file()).collect();
    match there.iter().find(|path| fault(path).is_none()) {
        Some(path) => Ok(path.clone()),
        None => Err(there
            .first()
            .and_then(|path| Some(format!("{}: {}", path.display(), fault(path)?)))
            .unwrap_or_else(|| {
                format!("no folder of PATH has such a program; one that is no command has a path, as in ./{program}")
            })),
    }
}

/// What the system meant by refusing to run it.
pub(super) fn why(program: &str, error: &Error) -> String {
    match (of(program), error.kind()) {
        (Err(why), ErrorKind::NotFound | ErrorKind::PermissionDenied) => why,
        // The file is there. A script's first line names what runs it, a binary its loader.
        (Ok(_), ErrorKind::NotFound) => "it is there, and what its #! line names to run it is not".to_owned(),
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            "it is no program for this machine, and has no #! line as a script has".to_owned()
        }
        _ => error.to_string(),
    }
}

fn fault(path: &Path) -> Option<String> {
    let file = match path.metadata() {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_relative() => {
            return Some(match std::env::current_dir() {
                Ok(folder) => format!("there is no such file in {}", folder.display()),
                Err(_) => "there is no such file".to_owned(),
            });
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Some("there is no such file".to_owned()),
        Err(error) => return Some(error.to_string()),
    };
    if file.is_dir() {
        Some("it is a folder".to_owned())
    } else if !file.is_file() {
        Some("it is no file".to_owned())
    } else if file.permissions().mode() & 0o111 == 0 {
        Some(format!("it is not executable: chmod +x {}", shell_words::quote(&path.to_string_lossy())))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_cannot_be_run_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        std::fs::write(at("text"), "hello").expect("written");
        symlink("/bin/sh", at("sh")).expect("linked");
        assert!(of(&at("sh")).is_ok() && of("sh").is_ok());
        for (program, why) in [
            (at("text"), "chmod +x"),
            (at("nothing"), "no such file"),
            (at(""), "a folder"),
            ("./nothing-of-this-name".to_owned(), "no such file in /"),
            ("nothing-of-this-name".to_owned(), "./nothing-of-this-name"),
        ] {
            let told = of(&program).expect_err(&program);
            assert!(told.contains(why), "{program}: {told}");
        }
    }

    #[test]
    fn a_program_that_is_there_and_cannot_be_run_is_not_called_missing() {
        let missing = Error::from(ErrorKind::NotFound);
        assert!(why("sh", &missing).contains("#! line"));
        assert!(why("/nothing/of/this/name", &missing).contains("no such file"));
        assert!(
            why("sh", &Error::from_raw_os_error(Errno::NOEXEC.raw_os_error())).contains("no program for this machine")
        );
        assert!(why("sh", &Error::from_raw_os_error(Errno::AGAIN.raw_os_error())).contains("temporarily"));
    }
}
