//! A program that uses a pool as programs use `std::fs`: `cargo run --example notes -- FILE`.

use std::io::{BufRead, BufReader, Write};

use vellum::{OpenOptions, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: notes FILE")?;
    let pool = match std::path::Path::new(&path).exists() {
        true => Pool::open(&path)?,
        false => Pool::create(&path)?,
    };
    let volume = pool.volume();
    volume.create_dir_all("/notes/old")?;
    volume.write("/notes/today", "buy bread\n")?;
    let append = OpenOptions::new().append(true);
    let mut today = volume.open_with("/notes/today", &append)?;
    writeln!(today, "read FAST papers")?;
    today.sync_all()?;
    volume.copy("/notes/today", "/notes/old/1")?;
    for line in BufReader::new(volume.open("/notes/old/1")?).lines() {
        println!("- {}", line?);
    }
    for entry in volume.walk("/notes")? {
        let entry = entry?;
        println!("{} {}", entry.path().display(), entry.metadata()?.len());
    }
    volume.remove_dir_all("/notes/old")?;
    pool.close()?;
    Ok(())
}
