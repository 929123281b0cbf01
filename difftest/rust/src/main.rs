//! The reference implementation as a judge of candidates.
//!
//! It reads candidates from stdin, each a file after its length as a u32, and
//! answers each on stdout, in the same order and also after a length. All numbers
//! are little-endian, a string follows its length, and an answer is
//!
//!     u8       verdict: 1 rejected, 2 rejected for the size of the file alone,
//!              3 accepted
//!     1        the error, to the end of the answer
//!     2 and 3  the table: a u32 count of tensors in any order, each with its name,
//!              its dtype, its shape as a u32 rank and u64 dimensions, and its data
//!              offsets as two u64; a u8 that is 1 if there is metadata; a u32 count
//!              of keys in any order, each with its value
//!     3        the file as the reference writes it, to the end of the answer
//!
//! With the name of a file as its argument it exits with 0 if the reference accepts the
//! file, with 1 if not.

use std::error::Error;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::{env, fs, process};

use safetensors::tensor::{Metadata, SafeTensorError, TensorView};
use safetensors::SafeTensors;

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
            answer.push(3);
            put_table(answer, &metadata);
            let data = &file[PREFIX + length..];
            answer.extend(rewrite(data, &metadata)?);
        }
        // This error comes last: the header itself is in order.
        Err(SafeTensorError::MetadataIncompleteBuffer) => {
            let length = u64::from_le_bytes(file[..PREFIX].try_into()?) as usize;
            let metadata = serde_json::from_slice(&file[PREFIX..PREFIX + length])?;
            answer.push(2);
            put_table(answer, &metadata);
        }
        Err(err) => {
            answer.push(1);
            answer.extend(err.to_string().bytes());
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

fn put_table(answer: &mut Vec<u8>, metadata: &Metadata) {
    let tensors = metadata.tensors();
    put_u32(answer, tensors.len());
    for (name, info) in tensors {
        put_string(answer, &name);
        put_string(answer, &info.dtype.to_string());
        put_u32(answer, info.shape.len());
        for &dimension in &info.shape {
            put_u64(answer, dimension);
        }
        put_u64(answer, info.data_offsets.0);
        put_u64(answer, info.data_offsets.1);
    }
    let strings = metadata.metadata().as_ref();
    answer.push(strings.is_some().into());
    put_u32(answer, strings.map_or(0, |strings| strings.len()));
    for (key, value) in strings.into_iter().flatten() {
        put_string(answer, key);
        put_string(answer, value);
    }
}

fn put_u32(answer: &mut Vec<u8>, n: usize) {
    answer.extend((n as u32).to_le_bytes());
}

fn put_u64(answer: &mut Vec<u8>, n: usize) {
    answer.extend((n as u64).to_le_bytes());
}

fn put_string(answer: &mut Vec<u8>, s: &str) {
    put_u32(answer, s.len());
    answer.extend(s.bytes());
}
