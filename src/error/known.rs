//! Errors of other crates that tool services make known.

use std::{
    any::{Any, TypeId},
    error::Error as StdError,
};

use super::ToolError;
use crate::foreign::{BRIDGES, Chain};

/// The error types of another crate, as its tool service knows them.
///
/// A tool service's constructor makes them known by [`register`]. The conversion into
/// a [`ToolError`] then recognises them wherever they are in a chain of errors. The methods are
/// called for failed calls only, once for each link of the chain. They get errors of any type, and
/// return their default for those that they do not know.
///
/// ```
/// use std::{error::Error, fmt};
/// use tower_toolcall::{
///     BoxError, ErrorKind, Evidence, ToolError,
///     error::{KnownErrors, register},
/// };
///
/// /// The error of a database's client.
/// #[derive(Debug)]
/// struct Busy;
/// # impl fmt::Display for Busy {
/// #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("E42") }
/// # }
/// # impl Error for Busy {}
///
/// struct Database;
///
/// impl KnownErrors for Database {
///     fn cause(&self, error: &(dyn Error + 'static)) -> Option<ToolError> {
///         let is_busy = error.is::<Busy>();
///         is_busy.then(|| ToolError::new(ErrorKind::Overloaded, "the database is busy"))
///     }
/// }
///
/// register(&Database); // in the constructor of the tool service
/// let error = ToolError::from_box(Busy.into());
/// assert_eq!(error.kind(), ErrorKind::Overloaded);
/// // Out of a tool it proves nothing, as any other crate's error.
/// assert_eq!(error.evidence(), Evidence::Inferred);
/// ```
#[expect(unused_variables, reason = "implementations use them")]
pub trait KnownErrors: Any + Send + Sync {
    /// Recognises an error as the tool service met it on its own connection. Default: `None`.
    ///
    /// The texts of the chain replace the message of the result. Evidence and execution count only
    /// where a [transport](crate::transport) has met the error.
    fn cause(&self, error: &(dyn StdError + 'static)) -> Option<ToolError> {
        None
    }

    /// Returns whether the error wraps another one and adds nothing, so that a [`ToolError`] below
    /// it keeps what it proves. Default: `false`.
    fn is_transparent(&self, error: &(dyn StdError + 'static)) -> bool {
        false
    }

    /// Returns the text of an error, if its `Display` is not for people. Default: `None`.
    fn text(&self, error: &(dyn StdError + 'static)) -> Option<String> {
        None
    }

    /// Returns whether a layer of the other crate has refused the call, so that it was not sent.
    /// Default: `false`.
    ///
    /// A [`NormalizeLayer`](crate::normalize::NormalizeLayer) makes such an error a
    /// [refusal](crate::Evidence::Refusal).
    fn is_refusal(&self, error: &(dyn StdError + 'static)) -> bool {
        false
    }

    /// Takes the address of the server, which may be a secret, out of a text that was made of the
    /// error. Default: the text as it is.
    fn without_address(&self, text: String, error: &(dyn StdError + 'static)) -> String {
        text
    }
}

static REGISTERED: Chain<&dyn KnownErrors> = Chain::new();

/// Makes the errors of another crate known, for the rest of the process. Returns whether they are
/// known now: `false` if 64 other crates are.
///
/// For the constructors of tool services; registering a type again changes nothing. If several
/// crates recognise an error, the first registered crate decides.
pub fn register(errors: &'static dyn KnownErrors) -> bool {
    // Of the value: a reference has a type of its own.
    fn of(errors: &dyn KnownErrors) -> TypeId {
        errors.type_id()
    }
    REGISTERED.add(errors, |known| of(*known) == of(errors))
}

pub(super) fn known() -> impl Iterator<Item = &'static dyn KnownErrors> {
    BRIDGES.iter().chain(REGISTERED.iter()).copied()
}

pub(crate) fn is_refusal(error: &(dyn StdError + 'static)) -> bool {
    known().any(|known| known.is_refusal(error))
}

/// Takes the addresses of servers, which may be secrets, out of a text that was made of an error
/// that is known by its type.
///
/// Call it in your own [`KnownErrors::without_address`] for an error that wraps one of another
/// crate but does not return it from `source`.
pub fn without_address(text: String, error: &(dyn StdError + 'static)) -> String {
    known().fold(text, |text, known| known.without_address(text, error))
}
