//! Requests for certificates, on a connection of their own: the client sends one message, the
//! server answers with one, each after its length as a u32 (big-endian). No HTTP, because this is
//! all that the server does for somebody without a certificate.

use std::io;

use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::protocol::wire::{self, signing_answer};
#[cfg(feature = "server")]
use crate::pki::request::MAX_REQUEST_BYTES;

/// Most bytes of a request with its token, and of an answer.
#[cfg(feature = "server")]
const MAX_ASKED: usize = MAX_REQUEST_BYTES + 256;
const MAX_ANSWERED: usize = 1 << 16;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningRequest {
    /// PKCS #10 in DER.
    pub request: Vec<u8>,
    /// The secret of a token; empty if the certificate of the connection is to be renewed.
    pub secret: Vec<u8>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SigningAnswer {
    /// The certificate and those of the authorities, in PEM.
    Issued(String),
    /// There is no need yet.
    TooEarly,
    /// Not granted, and why.
    Refused(String),
}

/// Sends a request and waits for the answer.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    SigningRequest { request, secret }: SigningRequest,
) -> io::Result<SigningAnswer> {
    let message = wire::SigningRequest { request: request.into(), secret: secret.into() };
    send(stream, &message.encode_to_vec()).await?;
    let answer = wire::SigningAnswer::decode(&*receive(stream, MAX_ANSWERED).await?);
    Ok(match answer.map_err(|_| garbled())?.answer {
        Some(signing_answer::Answer::Certificates(pem)) => SigningAnswer::Issued(pem),
        Some(signing_answer::Answer::TooEarly(wire::TooEarly {})) => SigningAnswer::TooEarly,
        Some(signing_answer::Answer::Refused(reason)) => SigningAnswer::Refused(reason),
        None => return Err(garbled()),
    })
}

/// Receives a request.
#[cfg(feature = "server")]
pub async fn asked<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<SigningRequest> {
    let message = wire::SigningRequest::decode(&*receive(stream, MAX_ASKED).await?);
    let wire::SigningRequest { request, secret } = message.map_err(|_| garbled())?;
    Ok(SigningRequest { request: request.into(), secret: secret.into() })
}

/// Sends the answer, and waits until the other side has it.
#[cfg(feature = "server")]
pub async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    answer: SigningAnswer,
) -> io::Result<()> {
    let answer = match answer {
        SigningAnswer::Issued(pem) => signing_answer::Answer::Certificates(pem),
        SigningAnswer::TooEarly => signing_answer::Answer::TooEarly(wire::TooEarly {}),
        SigningAnswer::Refused(reason) => signing_answer::Answer::Refused(reason),
    };
    send(stream, &wire::SigningAnswer { answer: Some(answer) }.encode_to_vec()).await?;
    stream.shutdown().await?;
    // Whether it says goodbye doesn't matter.
    _ = stream.read(&mut [0]).await;
    Ok(())
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| garbled())?;
    stream.write_all(&[&length.to_be_bytes()[..], message].concat()).await?;
    stream.flush().await
}

async fn receive<S: AsyncRead + Unpin>(stream: &mut S, most: usize) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await? as usize;
    if length > most {
        return Err(garbled());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no message about a certificate")
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_and_answers_arrive() {
        let request = SigningRequest { request: vec![1; 300], secret: vec![2; 20] };
        for given in [
            SigningAnswer::Issued("certificate".into()),
            SigningAnswer::TooEarly,
            SigningAnswer::Refused("no".into()),
        ] {
            let (mut near, mut far) = tokio::io::duplex(100);
            let serving = async {
                assert_eq!(asked(&mut far).await.unwrap(), request);
                answer(&mut far, given.clone()).await.unwrap();
            };
            let asking = async {
                let answer = ask(&mut near, request.clone()).await.unwrap();
                drop(near);
                answer
            };
            let ((), heard) = tokio::join!(serving, asking);
            assert_eq!(heard, given);
        }
    }

    #[tokio::test]
    async fn what_is_too_long_or_no_message_is_refused() {
        for sent in [
            &b""[..],
            &[0, 0, 1],
            &[0, 0, 0, 5, 1],
            &[0xff; 100],
            &[0, 0, 0x12, 0],
            b"GET / HTTP/1.1\r\n\r\n",
            &[0, 0, 0, 3, 0xff, 0xff, 0xff],
        ] {
            let mut sent = sent;
            assert!(asked(&mut sent).await.is_err());
        }
        let mut nothing = &[0, 0, 0, 0][..];
        assert_eq!(asked(&mut nothing).await.unwrap().request, b"");
    }
}
