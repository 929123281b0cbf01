//! What the Rust contestant can do, one function per task.

use crate::Task;
use bintensors::BinTensors;
use memmap2::{Mmap, MmapOptions};
use safetensors::slice::TensorIndexer;
use safetensors::{Dtype, SafeTensors};
use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ops::Bound;
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub fn prepare(task: &str, file: &str, args: &[String]) -> Result<Task> {
    let file = file.to_string();
    match (task, args) {
        ("parse", []) => parse(file),
        ("bintensors", []) => decode_bintensors(file),
        ("encode", []) => encode(file),
        ("serialize", []) => serialize(file),
        ("open", [tensor]) => open(file, tensor.clone()),
        ("load", []) => load(file),
        ("shard", [tensor, start, stop]) => {
            shard(file, tensor.clone(), start.parse()?, stop.parse()?)
        }
        ("write", [target]) => write(file, target.clone(), false),
        ("write-fsync", [target]) => write(file, target.clone(), true),
        _ => Err(format!("unknown task {task} with {} arguments", args.len()).into()),
    }
}

/// Times one run. The result is dropped after the clock has stopped.
fn time<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    let result = black_box(work()?);
    let elapsed = start.elapsed();
    drop(result);
    Ok(elapsed)
}

/// Times one run and the drop of its result.
fn time_with_drop<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    drop(black_box(work()?));
    Ok(start.elapsed())
}

fn map(file: &str) -> Result<Mmap> {
    Ok(unsafe { MmapOptions::new().map(&File::open(file)?)? })
}

fn parse(file: String) -> Result<Task> {
    let data = map(&file)?;
    Ok(Box::new(move || {
        time_with_drop(|| Ok(SafeTensors::read_metadata(&data)?))
    }))
}

/// Decodes the file's table from a header of bintensors. The crate cannot write
/// one without the data of all tensors, so its parts are encoded here as
/// `Metadata` encodes them, into a sparse file.
fn decode_bintensors(file: String) -> Result<Task> {
    let (_, table) = SafeTensors::read_metadata(&map(&file)?)?;
    let mut rows = Vec::new();
    for name in table.offset_keys() {
        let info = table.info(&name).ok_or("no such tensor")?;
        rows.push((
            name,
            bintensors::tensor::TensorInfo {
                dtype: bintensors_dtype(info.dtype)?,
                shape: info.shape.clone(),
                data_offsets: info.data_offsets,
            },
        ));
    }
    let metadata = table.metadata().clone();
    let mut header = bincode::encode_to_vec((metadata, rows), bincode::config::standard())?;
    header.resize(header.len().next_multiple_of(8), b' ');

    let name = file + ".bt";
    fs::write(
        &name,
        [&(header.len() as u64).to_le_bytes()[..], &header].concat(),
    )?;
    let target = File::options().write(true).open(&name)?;
    target.set_len((8 + header.len() + table.data_len()) as u64)?;
    let data = map(&name)?;
    fs::remove_file(&name)?;
    Ok(Box::new(move || {
        time_with_drop(|| Ok(BinTensors::read_metadata(&data)?))
    }))
}

fn bintensors_dtype(dtype: Dtype) -> Result<bintensors::Dtype> {
    Ok(match dtype {
        Dtype::U8 => bintensors::Dtype::U8,
        Dtype::F16 => bintensors::Dtype::F16,
        Dtype::BF16 => bintensors::Dtype::BF16,
        Dtype::F32 => bintensors::Dtype::F32,
        _ => return Err(format!("no dtype {dtype} in the inputs of this benchmark").into()),
    })
}

fn encode(file: String) -> Result<Task> {
    let (_, table) = SafeTensors::read_metadata(&map(&file)?)?;
    Ok(Box::new(move || {
        time_with_drop(|| Ok(serde_json::to_string(&table)?))
    }))
}

fn serialize(file: String) -> Result<Task> {
    let data = fs::read(&file)?;
    Ok(Box::new(move || {
        let tensors = SafeTensors::deserialize(&data)?.tensors();
        time_with_drop(|| Ok(safetensors::serialize(tensors, None)?))
    }))
}

fn open(file: String, tensor: String) -> Result<Task> {
    let run = move || {
        let start = Instant::now();
        let data = map(&file)?;
        let tensors = SafeTensors::deserialize(&data)?;
        black_box(tensors.tensor(&tensor)?.data()[0]);
        drop(tensors);
        drop(data); // closing is part of this task
        Ok(start.elapsed())
    };
    Ok(Box::new(run))
}

fn load(file: String) -> Result<Task> {
    let run = move || {
        time(|| {
            let data = fs::read(&file)?;
            SafeTensors::deserialize(&data)?;
            Ok(data)
        })
    };
    Ok(Box::new(run))
}

fn shard(file: String, tensor: String, start: usize, stop: usize) -> Result<Task> {
    let data = map(&file)?;
    let mut gathered: Vec<u8> = Vec::new();
    let run = move || {
        gathered.clear(); // keeps the memory for the next run
        let tensors = SafeTensors::deserialize(&data)?;
        let view = tensors.tensor(&tensor)?;
        time(|| {
            let columns = [
                TensorIndexer::Narrow(Bound::Unbounded, Bound::Unbounded, NonZeroUsize::MIN),
                TensorIndexer::Narrow(
                    Bound::Included(start),
                    Bound::Excluded(stop),
                    NonZeroUsize::MIN,
                ),
            ];
            let pieces = view.sliced_data(&columns).map_err(|e| format!("{e:?}"))?;
            gathered.reserve(pieces.remaining_byte_len());
            pieces.for_each(|piece| gathered.extend_from_slice(piece));
            Ok(())
        })
    };
    Ok(Box::new(run))
}

fn write(source: String, target: String, durable: bool) -> Result<Task> {
    let data = fs::read(&source)?;
    let run = move || {
        let tensors = SafeTensors::deserialize(&data)?.tensors();
        let target = Path::new(&target);
        time(|| {
            safetensors::serialize_to_file(tensors, None, target)?;
            if durable {
                File::open(target)?.sync_all()?;
                File::open(target.parent().unwrap())?.sync_all()?;
            }
            Ok(())
        })
    };
    Ok(Box::new(run))
}
