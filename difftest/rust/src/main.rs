//! The reference implementation as a judge of candidates.
//!
//! It reads candidates from stdin, each a file after its length as a u32, and
//! answers each on stdout, in the same order and also after a length. All numbers
//! are little-endian. An answer is a JSON object with
//!
//!     verdict             1 rejected, 2 rejected for the size of the file alone, 3 accepted
//!     reason              1: the error
//!     tensors, metadata   2 and 3: the table, as in a header
//!
//! and after it, if the file is accepted, the file as the reference writes it.
//!
//! With the name of a file as its argument it exits with 0 if the reference accepts the
//! file, with 1 if not.

use std::error::Error;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::{env, fs, process};

use safetensors::tensor::{Metadata, SafeTensorError, TensorView};
use safetensors::SafeTensors;
use serde_json::json;

const PREFIX: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(name) = env::args_os().nth(1) {
        let file = fs::read(name)?;
        process::exit(SafeTensors::deserialize(&file).is_err().into());
    }
    let mut input = BufReader::with_capacity(1 << 18, io::stdin().lock());
    let mut output = BufWriter::with_capacity(1 << 18, io::stdout().lock());
    let (mut file, mut answer) = (Vec::new(), Vec::new());
    loop {
        if input.buffer().is_empty() {
            output.flush()?; // before the next read blocks
        }
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => break,
            other => other?,
        }
        file.resize(u32::from_le_bytes(length) as usize, 0);
        input.read_exact(&mut file)?;
        answer.clear();
        judge(&file, &mut answer)?;
        output.write_all(&(answer.len() as u32).to_le_bytes())?;
        output.write_all(&answer)?;
    }
    Ok(output.flush()?)
}

fn judge(file: &[u8], answer: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    match SafeTensors::read_metadata(file) {
        Ok((length, metadata)) => {
            put_table(answer, 3, &metadata)?;
            let data = &file[PREFIX + length..];
            answer.extend(rewrite(data, &metadata)?);
        }
        // This error comes last: the header itself is in order.
        Err(SafeTensorError::MetadataIncompleteBuffer) => {
            let length = u64::from_le_bytes(file[..PREFIX].try_into()?) as usize;
            let metadata = serde_json::from_slice(&file[PREFIX..PREFIX + length])?;
            put_table(answer, 2, &metadata)?;
        }
        Err(err) => {
            serde_json::to_writer(answer, &json!({"verdict": 1, "reason": err.to_string()}))?;
        }
    }
    Ok(())
}

fn rewrite(data: &[u8], metadata: &Metadata) -> Result<Vec<u8>, SafeTensorError> {
    let mut views = Vec::new();
    for (name, info) in metadata.tensors() {
        let (begin, end) = info.data_offsets;
        let view = TensorView::new(info.dtype, info.shape.clone(), &data[begin..end])?;
        views.push((name, view));
    }
    safetensors::serialize(views, metadata.metadata().clone())
}

fn put_table(answer: &mut Vec<u8>, verdict: u8, metadata: &Metadata) -> serde_json::Result<()> {
    let (tensors, strings) = (metadata.tensors(), metadata.metadata());
    serde_json::to_writer(
        answer,
        &json!({"verdict": verdict, "tensors": tensors, "metadata": strings}),
    )
}
