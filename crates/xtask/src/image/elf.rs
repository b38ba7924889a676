//! ELF headers of a program: the architecture, and the dynamic linker if the program needs one. Only 64-bit little-endian programs are supported.

use anyhow::{Context, Result, bail, ensure};

/// Type number (`PT_INTERP`) of the ELF program header that names the dynamic linker.
const INTERPRETER: u32 = 3;

/// Facts from the ELF headers of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The program's architecture, under its name in image configurations, such as `amd64`.
    pub(super) architecture: &'static str,
    /// The dynamic linker of the program; `None` for a statically linked program.
    pub(super) interpreter: Option<String>,
}

/// Reads the ELF headers of a program.
pub(super) fn read(file: &[u8]) -> Result<Program> {
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "no ELF file of 64 bits in little endian");
    let architecture = match number(file, 18, 2)? {
        62 => "amd64",
        183 => "arm64",
        machine => bail!("it is for machines of ELF's number {machine}; images are made for amd64 and arm64"),
    };
    let (first, size, count) = (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
    let mut interpreter = None;
    for index in 0..count {
        let header = first.saturating_add(index * size);
        if u32::try_from(number(file, header, 4)?) == Ok(INTERPRETER) {
            let (at, length) = (number(file, header + 8, 8)?, number(file, header + 32, 8)?);
            let name = String::from_utf8_lossy(part(file, at, length)?).into_owned();
            interpreter = Some(name.trim_end_matches('\0').to_owned());
        }
    }
    Ok(Program { architecture, interpreter })
}

fn part(file: &[u8], at: u64, length: u64) -> Result<&[u8]> {
    let end = at.checked_add(length).and_then(|end| usize::try_from(end).ok());
    let found = usize::try_from(at).ok().zip(end).and_then(|(at, end)| file.get(at..end));
    found.with_context(|| format!("the file ends before byte {at} and {length} more"))
}

/// The little-endian number in `bytes` bytes of the ELF file from the offset `at` on.
fn number(file: &[u8], at: u64, bytes: u64) -> Result<u64> {
    Ok(part(file, at, bytes)?.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file for tests with two program headers; the second program header has the given type and points to the text at the file's end.
    fn program(machine: u8, kind: u8, text: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 2 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = machine;
        (file[32], file[54], file[56]) = (64, 56, 2);
        file[64 + 56] = kind;
        file[64 + 56 + 8] = 64 + 2 * 56;
        file[64 + 56 + 32] = u8::try_from(text.len()).unwrap();
        file.extend(text.as_bytes());
        file
    }

    #[test]
    fn elf_architecture_and_dynamic_linker_are_read() {
        let dynamic = read(&program(183, 3, "/lib/ld.so\0")).unwrap();
        assert_eq!(dynamic, Program { architecture: "arm64", interpreter: Some("/lib/ld.so".to_owned()) });
        let fixed = read(&program(62, 6, "/lib/ld.so\0")).unwrap();
        assert_eq!(fixed, Program { architecture: "amd64", interpreter: None });
    }

    #[test]
    fn test_program_itself_is_linked_dynamically() {
        let own = read(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(own.interpreter.is_some_and(|name| name.contains("/ld-")), "tests are linked as Cargo does it");
    }

    #[test]
    fn file_that_is_no_program_of_known_machine_is_refused() {
        assert!(read(b"#!/bin/sh\n").is_err());
        assert!(read(&program(62, 3, "/lib/ld.so\0")[..100]).is_err(), "the file is cut");
        assert!(read(&program(243, 3, "")).is_err(), "RISC-V");
    }
}
