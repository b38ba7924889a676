//! A name server like a cluster's: it knows one name, and answers that every other name does not exist. The server listens on port 53, at which
//! programs ask name servers; only a privileged process can listen on that port.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

/// Number of bytes of a DNS message before the question.
const HEADER: usize = 12;
/// Type of a question for an IPv4 address.
const A: [u8; 2] = [0, 1];
/// Pause after which the server checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);

/// A running name server; it ends when the value is dropped.
#[derive(Debug)]
pub struct NameServer {
    address: Ipv4Addr,
    asked: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts a server that answers 127.0.0.1 for the name `known`; `None` if this process may not listen on port 53.
    ///
    /// # Errors
    /// Fails if the server cannot listen on port 53 for another reason than a missing right.
    pub fn start(known: &str) -> Result<Option<NameServer>> {
        // Each process uses another address of loopback, so that the servers of two runs do not meet.
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
                // A client that gets no answer asks again, so the server ignores a failed send.
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

    /// All names for which clients have asked the server.
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

/// The name that a DNS message asks for, and the answer; `None` if the message is not a question.
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
    // A name without an address of the wanted type exists nevertheless, so the answer must not be NXDOMAIN.
    let found = name == known;
    let answered = found && kind == A;
    let mut answer = message.get(..2)?.to_vec();
    // The flags of an answer with recursion available; the last four bits are 3 (NXDOMAIN) for an unknown name.
    answer.extend([0x81, if found { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(answered), 0, 0, 0, 0]);
    answer.extend(question);
    if answered {
        // The answer's record: a pointer to the name in the question, type A, class Internet, valid for five seconds, four bytes of address.
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
