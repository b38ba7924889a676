//! A name server like a cluster's: it knows one name, and answers that every other does not exist. Programs ask name servers at port 53, on
//! which only a privileged process can listen.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

/// Bytes before the question.
const HEADER: usize = 12;
/// Type of a question for an address of IPv4.
const A: [u8; 2] = [0, 1];
/// Pause after which the server checks whether it shall end.
const LOOK: Duration = Duration::from_millis(100);

/// The server; it ends when it is dropped.
#[derive(Debug)]
pub struct NameServer {
    address: Ipv4Addr,
    asked: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts a server that answers 127.0.0.1 for the name; `None` where this process may not listen on port 53.
    ///
    /// # Errors
    /// Fails when the port cannot be had for another reason.
    pub fn start(known: &str) -> Result<Option<NameServer>> {
        // Another address of the loopback for each process: servers of two runs do not meet.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 53, high, low | 1);
        let socket = match UdpSocket::bind((address, 53)) {
            Ok(socket) => socket,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("listening on {address}:53")),
        };
        socket.set_read_timeout(Some(LOOK))?;
        let (asked, over) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let (of_thread, ends, known) = (Arc::clone(&asked), Arc::clone(&over), known.to_owned());
        let serve = move || {
            let mut question = [0; 512];
            while !ends.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                let Some((name, answer)) = answer(&question[..length], &known) else { continue };
                of_thread.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                // A client without an answer asks again.
                let _ = socket.send_to(&answer, from);
            }
        };
        Ok(Some(NameServer { address, asked, over, thread: Some(thread::spawn(serve)) }))
    }

    /// The address of the server.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// All names that the server was asked for.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The name that a message asks for, and the answer; `None` for a message that is no question.
fn answer(message: &[u8], known: &str) -> Option<(String, Vec<u8>)> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let name = labels.join(".");
    let (question, kind) = (message.get(HEADER..at + 4)?, message.get(at..at + 2)?);
    // A name without an address of the wanted type exists nevertheless.
    let found = name == known;
    let answered = found && kind == A;
    let mut answer = message.get(..2)?.to_vec();
    // An answer with recursion available; the last four bits are 3 (NXDOMAIN) for an unknown name.
    answer.extend([0x81, if found { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(answered), 0, 0, 0, 0]);
    answer.extend(question);
    if answered {
        // The name of the question, an address of the Internet for five seconds, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1]);
    }
    Some((name, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u8) -> Vec<u8> {
        let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap_or(0));
            message.extend(label.as_bytes());
        }
        message.extend([0, 0, kind, 0, 1]);
        message
    }

    #[test]
    fn name_server_resolves_only_its_one_name() {
        let known = "a.cluster.local";
        let (name, found) = answer(&question("A.cluster.local", 1), known).unwrap_or_default();
        assert_eq!(name, known);
        assert_eq!(
            (&found[..8], &found[found.len() - 4..]),
            (&[7, 9, 0x81, 0x80, 0, 1, 0, 1][..], &[127, 0, 0, 1][..])
        );
        let (_, other_kind) = answer(&question(known, 28), known).unwrap_or_default();
        assert_eq!(other_kind[2..8], [0x81, 0x80, 0, 1, 0, 0], "it is there, without such an address");
        let (_, unknown) = answer(&question("b.cluster.local", 1), known).unwrap_or_default();
        assert_eq!(unknown[2..8], [0x81, 0x83, 0, 1, 0, 0]);
        assert!(answer(&question(known, 1)[..20], known).is_none(), "half a question");
    }
}
