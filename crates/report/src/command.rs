//! Commands that a reader can run as they are printed.

use std::path::Path;

/// A word as a shell reads it.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The command that continues the record in a folder, up to this number of blocks where one is given. `command` is the one
/// that the record was begun by.
pub fn resume(command: &str, folder: &Path, blocks: Option<usize>) -> String {
    let mut words = Vec::new();
    let mut rest = words_of(command).into_iter();
    while let Some(word) = rest.next() {
        match word {
            "--resume" => {}
            "--out" => {
                rest.next();
            }
            "--blocks" if blocks.is_some() => {
                rest.next();
            }
            _ => words.push(word.to_owned()),
        }
    }
    words.push(format!("--out {}", quote(&folder.display().to_string())));
    words.push("--resume".to_owned());
    words.extend(blocks.map(|blocks| format!("--blocks {blocks}")));
    words.join(" ")
}

/// The words of a command, with their quotes.
fn words_of(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut begun, mut quoted, mut escaped) = (None, false, false);
    for (at, sign) in command.char_indices() {
        if sign == ' ' && !quoted && !escaped {
            words.extend(begun.take().map(|from: usize| &command[from..at]));
            continue;
        }
        begun = begun.or(Some(at));
        quoted ^= sign == '\'' && !escaped;
        escaped = sign == '\\' && !quoted && !escaped;
    }
    words.extend(begun.map(|from| &command[from..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continued_command_has_each_option_once() {
        let command = "sudo lowroad compare 'my plan.toml' --arm 'a=it'\\''s --blocks 9' --blocks 10 --seed 7";
        assert_eq!(
            resume(command, Path::new("an out"), Some(20)),
            "sudo lowroad compare 'my plan.toml' --arm 'a=it'\\''s --blocks 9' --seed 7 --out 'an out' --resume --blocks 20"
        );
        assert_eq!(
            resume("lowroad compare e --blocks 10", Path::new("out"), None),
            "lowroad compare e --blocks 10 --out out --resume"
        );
        assert_eq!(quote(""), "''");
    }
}
