//! The Rust contestant: does a task n times and says how long that took.
//!
//! It reads requests from stdin, one per line with tabs between the words:
//!
//!     TASK N FILE [ARGUMENT…]
//!
//! and answers each with the nanoseconds of all N runs together, without what
//! the task needs once (mapping an input, parsing a table to encode), which is
//! kept for the next request of the same task. With N = 0 only that is done.
//! Dropping the result is part of a run if it is a table, not if it is data.

mod tasks;

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Duration;

/// A task with its inputs: each call is one run.
pub type Task = Box<dyn FnMut() -> Result<Duration, Box<dyn Error>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut kept = None;
    for line in io::stdin().lock().lines() {
        let words: Vec<String> = line?.split('\t').map(String::from).collect();
        match answer(&words, &mut kept) {
            Ok(nanoseconds) => println!("{nanoseconds}"),
            Err(err) => println!("error: {err:?}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

/// Runs a request; `kept` is the task of the previous request, by its words.
fn answer(
    words: &[String],
    kept: &mut Option<(Vec<String>, Task)>,
) -> Result<u128, Box<dyn Error>> {
    if words.len() < 3 {
        return Err("want TASK N FILE [ARGUMENT…]".into());
    }
    let count: u32 = words[1].parse()?;
    let mut key = words.to_vec();
    key.remove(1);
    if kept.as_ref().map(|(k, _)| k) != Some(&key) {
        *kept = None; // first free what the last task held
        *kept = Some((key.clone(), tasks::prepare(&key[0], &key[1], &key[2..])?));
    }
    let (_, run) = kept.as_mut().unwrap();
    let mut total = Duration::ZERO;
    for _ in 0..count {
        total += run()?;
    }
    Ok(total.as_nanos())
}
