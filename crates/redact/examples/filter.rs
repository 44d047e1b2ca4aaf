//! A filter: prints the text on stdin without its secrets, and on stderr which rules found them.
//!
//! ```sh
//! env | cargo run -p toolcall-redact --example filter
//! ```

use std::io::{self, Read as _, Write as _};

use toolcall_redact::Rules;

fn main() -> io::Result<()> {
    // The whole text: a private key is known by its lines together.
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;

    let rules = Rules::new();
    for found in rules.explain(&text) {
        eprintln!("{}: {} bytes", found.rule(), found.secret().len());
    }
    io::stdout().write_all(rules.redact_text(&text).as_bytes())
}
