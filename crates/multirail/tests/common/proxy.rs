//! Someone on the path between a client and a server: a proxy that carries every connection of a
//! session, and may change what it carries.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the proxy does with a piece of a connection: its number, whether it is from the client, how
/// many bytes of that direction were before it, and the piece.
pub type Change = dyn FnMut(usize, bool, u64, &mut Vec<u8>);

/// Carries connections to `server`, for as long as the future is polled.
pub async fn proxy(listener: TcpListener, server: SocketAddr, change: Rc<RefCell<Box<Change>>>) {
    let mut connections = tokio::task::JoinSet::new();
    let local = tokio::task::LocalSet::new();
    let accepting = async {
        for number in 0.. {
            let Ok((client, _)) = listener.accept().await else { return };
            let Ok(far) = TcpStream::connect(server).await else { return };
            let change = change.clone();
            connections.spawn_local(carry(number, client, far, change));
        }
    };
    local.run_until(accepting).await;
}

async fn carry(number: usize, client: TcpStream, server: TcpStream, change: Rc<RefCell<Box<Change>>>) {
    let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (client.into_split(), server.into_split());
    let change = &change;
    let one_way =
        async |read: &mut tokio::net::tcp::OwnedReadHalf, write: &mut tokio::net::tcp::OwnedWriteHalf, is_up: bool| {
            let (mut buffer, mut before) = (vec![0; 64 << 10], 0);
            while let Ok(length @ 1..) = read.read(&mut buffer).await {
                let mut bytes = buffer[..length].to_vec();
                change.borrow_mut()(number, is_up, before, &mut bytes);
                before += length as u64;
                if write.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            let _ = write.shutdown().await;
        };
    let up = one_way(&mut near_read, &mut far_write, true);
    tokio::join!(up, one_way(&mut far_read, &mut near_write, false));
}
