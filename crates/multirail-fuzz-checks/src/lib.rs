#![doc = include_str!("../README.md")]

mod copy;
mod member;
mod session;
mod streams;

use multirail_proto::placement::Mac;
use multirail_proto::placement::exchange::Exchange;
use multirail_proto::placement::hello::{Hello, HelloPort};
use multirail_proto::placement::hosts::parse_hosts;
use multirail_proto::topology::RailFilter;
use multirail_proto::units::{format_size, parse_rate_mbit_s, parse_size};
use multirail_proto::wire::{Control, Frame, MAX_HEAD_BYTES, MAX_PACKET_BYTES, Port, packet};

pub use copy::copy;
pub use member::member;
pub use session::session;
pub use streams::streams;

/// A stream of frames: each takes some bytes and no more than there are, and what is decoded encodes to itself.
pub fn frame(mut bytes: &[u8]) {
    while let Ok(Some((frame, length))) = Frame::decode(bytes) {
        assert!(length > 0 && length <= bytes.len() && length == frame.encoded_bytes());
        let mut again = [0; MAX_HEAD_BYTES];
        assert_eq!(frame.encode(&mut again), length);
        assert_eq!(Frame::decode(&again[..length]), Ok(Some((frame, length))));
        // Any shorter piece is waited for, not misread.
        assert_eq!(Frame::decode(&bytes[..length - 1]), Ok(None));
        bytes = &bytes[length..];
    }
}

/// A stream of control packets.
pub fn control(mut bytes: &[u8]) {
    while let Ok(Some((control, length))) = packet::decode::<Control>(bytes) {
        assert!(
            (packet::PREFIX_BYTES..=packet::PREFIX_BYTES + MAX_PACKET_BYTES).contains(&length) && length <= bytes.len()
        );
        let mut again = Vec::new();
        packet::encode(&control, &mut again);
        assert_eq!(packet::decode(&again), Ok(Some((control, again.len()))));
        bytes = &bytes[length..];
    }
}

/// Sizes and rates as people type them.
pub fn units(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(size) = parse_size(text) {
        assert!(!format_size(size).is_empty());
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
    if let Ok(rate) = parse_rate_mbit_s(text) {
        assert!(rate.is_finite() && rate > 0.0, "{text:?} is {rate}");
    }
}

/// A choice of rails, and what it makes of some ports.
pub fn filter(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(filter) = text.parse::<RailFilter>() else { return };
    for (name, address) in
        [("eth0", "10.1.2.3"), ("", "::1"), ("enp129s0f0np0", "fe80::1"), ("aaaaaaaaaaaaaaa", "0.0.0.0")]
    {
        let address = address.parse().expect("an address");
        let port = Port { name: name.to_owned(), index: 1, address, prefix_bits: 255, speed_mbit_s: 0 };
        let admitted = filter.admits(&port, address);
        assert!(admitted || !filter.is_empty(), "nothing is asked for, and {name:?} is left out");
        let _ = filter.names(name);
    }
}

/// A hello: what is decoded encodes to the same bytes, and is taken or counted by a host that receives it on any port.
pub fn hello(bytes: &[u8]) {
    let Ok(hello) = Hello::decode(bytes) else { return };
    assert_eq!(hello.encode(), bytes);
    let ports = [1, 2].map(|number| HelloPort { mac: Mac([2, 1, 1, 1, 1, number]), usable: true, speed_mbit_s: 0 });
    let mut host = Exchange::new(ports.to_vec(), 1);
    for at in 0..2 {
        for source in &hello.ports {
            host.handle_hello(at, source.mac, &hello, 0);
        }
    }
    assert!(host.peers(0).iter().all(|peer| peer.usable & !0b11 == 0));
    assert!(host.hello(0, 0).heard.len() <= 1);
}

/// A file of hosts.
pub fn hosts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(hosts) = parse_hosts(text, &[Mac([2, 0, 0, 0, 1, 0])]) else { return };
    assert!(hosts.others.iter().all(|ports| !ports.is_empty() && ports.iter().all(|port| port.mac.is_unicast())));
}
