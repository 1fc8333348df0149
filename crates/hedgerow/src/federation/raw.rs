//! Federations that are given raw samples: nodes scale and map them, and exchange messages with the
//! server.

use super::Federation;
use crate::message::{BYTES_PER_NUMBER, ToServer};
use crate::node::Node;

impl Federation {
    /// Connects all nodes with the server, before the first [`Federation::exchange`].
    pub fn connect(&mut self) {
        for node in &mut self.nodes {
            node.connected();
            self.server.connected(node.id());
            // A node refuses nothing that its own server says.
            self.server.opening(0, false).for_each(|message| _ = node.hear(&message));
        }
    }

    /// All nodes by number, to predict and learn from raw samples.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Every node that has learned something speaks, the round closes, and all hear what came of
    /// it. A node that does not speak is still connected.
    pub fn exchange(&mut self) {
        let Self { server, nodes, taken, traffic, .. } = self;
        for (node, taken) in nodes.iter_mut().zip(&mut *taken) {
            let id = node.id();
            node.speak(false, |message| {
                let bytes = message.bytes() as u64;
                traffic.bytes_up += bytes;
                traffic.numbers_up += bytes.div_ceil(BYTES_PER_NUMBER as u64);
                if let (Ok(()), ToServer::Upload(upload)) = (server.accept(id, &message), message) {
                    *taken = upload.round;
                    traffic.uploads_accepted += 1;
                }
            });
        }
        if !server.close_round().is_news() {
            return;
        }
        let scale = server.scale_message();
        for (node, taken) in nodes.iter_mut().zip(taken) {
            let is_next = node.round() + 1 == server.round();
            let broadcast = server.broadcast_message(*taken, is_next);
            let bytes = broadcast.bytes() as u64;
            traffic.bytes_down += bytes;
            traffic.numbers_down += bytes.div_ceil(BYTES_PER_NUMBER as u64);
            scale.iter().chain([&broadcast]).for_each(|message| _ = node.hear(message));
        }
    }
}
