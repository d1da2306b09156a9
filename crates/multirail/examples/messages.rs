//! Two hosts exchange a message. Here both are this machine, so there is one rail; nothing in the
//! code would differ with more.
//!
//! `cargo run -p multirail --example messages`

use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Session, Token};

#[tokio::main(flavor = "current_thread")]
async fn main() -> multirail::Result<()> {
    let config = Config::new().token(Token::new(b"what both sides know"));

    // One side listens, and gets a session for each host that connects and knows the token.
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), config.clone());
    let mut listener = Listener::bind(listen).await?;
    let address = listener.address().to_string();
    let server = async {
        let Accepted::Session(new) = listener.accept().await? else { return Ok(()) };
        let mut session = new.start();
        let mut buffer = vec![0; 1 << 20];
        let length = session.recv(&mut buffer).await?;
        session.send(&buffer[..length]).await?;
        session.close().await
    };

    // The other side connects to any address of the first; the other rails are found from there.
    let client = async {
        let mut session = Session::connect(&address, config).await?;
        let message = vec![42; 300_000];
        session.send(&message).await?;
        let mut answer = vec![0; message.len()];
        let length = session.recv(&mut answer).await?;
        assert_eq!(answer[..length], message);
        for rail in session.rails() {
            println!("rail {}: {} bytes sent, {} received", rail.rail, rail.sent_bytes, rail.received_bytes);
        }
        session.close().await
    };

    tokio::try_join!(server, client)?;
    Ok(())
}

#[test]
fn runs() {
    main().expect("the example runs");
}
