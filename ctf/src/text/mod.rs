//! Values of fields as text: numbers as C's `printf` formats them, and strings as UTF-8.

mod number;
mod strings;

pub use number::{
    nine_digits, push_binary, push_byte, push_float, push_hexadecimal, push_octal, push_signed,
    push_two_digits, push_unsigned,
};
pub use strings::{push_escaped, to_utf8, until_null};
