//! A digital microscope ("Impact of High Performance Sockets on Data Intensive Applications",
//! section 2): a slide of several gigapixels, stored as blocks, is looked at through a window that
//! moves and zooms.
//!
//! ```text
//! clip x3      reads the blocks that the window touches, and cuts them to it
//! subsample x3 sums the pixels that fall on one pixel of the view
//! view x3      adds up what comes
//! frame        puts the views together: a picture
//! ```

mod direct;
mod filters;
mod frame;
mod slide;
#[cfg(test)]
mod tests;

use anyhow::Context;
use clap::{Parser, Subcommand};
use filters::Window;
use frame::{Picture, Scope};
use multirail::pipeline::edge::Transport;
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Config, Token, runtime};
use serde_json::json;
use slide::Slide;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Look at a slide through a pipeline of filters.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Grow a slide from a small picture
    ///
    /// The picture is laid N by N times, every second one mirrored, each a little lighter or darker
    /// by its place, so that no two of neighbouring blocks are the same and there are no seams in
    /// the tissue. A block of the slide is one such picture.
    Grow {
        /// The picture: PNG, RGB of 8 bits
        picture: PathBuf,
        /// Where the slide goes
        slide: PathBuf,
        /// The number in each direction: 96 of 512 pixels are 2.4 gigapixels, 7.2 GB
        #[arg(long, default_value_t = 96)]
        times: u32,
    },
    /// Be a host: its filters read slides below the folder
    Serve {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:7717")]
        listen: SocketAddr,
        /// The folder with slides
        #[arg(long, default_value = ".")]
        root: PathBuf,
        /// File with the token that all must know
        #[arg(long)]
        token_file: Option<PathBuf>,
    },
    /// Move over a slide: a complete picture, partial updates, zooms
    Tour {
        /// The slide: below the hosts' folders, or here, if there are no hosts
        slide: PathBuf,
        /// Hosts: the copies of each filter are given to them in turn [default: all in this
        /// process]
        #[arg(long, value_delimiter = ',')]
        hosts: Vec<String>,
        /// What carries the edges between hosts: tcp, shm or striped [default: the best]
        #[arg(long)]
        transport: Option<Transport>,
        /// Copies of each filter
        #[arg(long, default_value_t = 3)]
        copies: usize,
        /// Pixels of the picture in each direction; at most the slide's
        #[arg(long, default_value_t = 768)]
        pixels: u32,
        /// Pictures go here
        #[arg(long, default_value = "microscope-pictures")]
        out: PathBuf,
        /// The slide once more, as it is found from here: pictures are compared with what a simple
        /// loop makes of it
        #[arg(long, value_name = "SLIDE")]
        compare: Option<PathBuf>,
        /// A JSON object a picture
        #[arg(long)]
        json: bool,
        /// File with the token that the hosts were started with
        #[arg(long)]
        token_file: Option<PathBuf>,
    },
}

fn config(token_file: Option<&PathBuf>) -> anyhow::Result<Config> {
    let token = token_file.map(|file| Token::from_file(file)).transpose()?;
    Ok(Config::new().token(token))
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Grow { picture, slide, times } => {
            let shape = slide::grow(&picture, &slide, times)?;
            let pixels = u64::from(shape.blocks) * u64::from(shape.block_pixels);
            println!(
                "{}: {pixels} x {pixels} pixels, {:.2} gigapixels",
                slide.display(),
                (pixels * pixels) as f64 / 1e9
            );
            Ok(())
        }
        Command::Serve { listen, root, token_file } => {
            let session = config(token_file.as_ref())?;
            let root = root.canonicalize().with_context(|| format!("--root {}", root.display()))?;
            let listen = ListenConfig::new(listen, session);
            let ready = |address| println!("listening on {address}");
            runtime::block_on(Server::new(listen, root.clone()).with_filters(filters::all(root)).serve(ready))?;
            Ok(())
        }
        Command::Tour { slide, hosts, transport, copies, pixels, out, compare, json, token_file } => {
            std::fs::create_dir_all(&out).with_context(|| format!("--out {}", out.display()))?;
            let config = config(token_file.as_ref())?;
            let mut scope = Scope::start(config, &slide, &hosts, transport, copies)?;
            let slide = compare.map(|slide| Slide::open(&slide)).transpose()?;
            tour(&mut scope, pixels, &Album { folder: out, json, slide })
        }
    }
}

/// Where pictures go, and what is said of them.
struct Album {
    folder: PathBuf,
    json: bool,
    /// To compare with.
    slide: Option<Slide>,
}

impl Album {
    fn add(&self, picture: &Picture, view: &str, number: u32) -> anyhow::Result<()> {
        let factor = picture.window.factor;
        let path = self.folder.join(format!("{view}-{number}.png"));
        picture.save(&path)?;
        if let Some(slide) = &self.slide {
            let same = direct::picture(slide, picture.window)? == picture.pixels();
            anyhow::ensure!(same, "{} is not the picture of a simple loop", path.display());
        }
        let took_ms = picture.took.as_secs_f64() * 1e3;
        if self.json {
            let read_bytes = picture.read_bytes;
            let row = json!({ "view": view, "factor": factor, "took_ms": took_ms, "read_bytes": read_bytes, "picture": path });
            println!("{row}");
        } else {
            let read_mb = picture.read_bytes as f64 / 1e6;
            println!("{view:<8} 1 : {factor:<3} {took_ms:9.1} ms  {read_mb:8.1} MB read  {}", path.display());
        }
        Ok(())
    }
}

/// The work of a user of a microscope: a complete picture, three moves by an eighth of it (partial
/// updates), and zooms.
fn tour(scope: &mut Scope, pixels: u32, album: &Album) -> anyhow::Result<()> {
    let side = scope.side_pixels()?;
    let pixels = pixels.clamp(1, side);
    // The whole slide in the picture, or as much as its pixels allow.
    let mut factor = (side / pixels).min(8);
    let middle = |factor: u32| {
        let width = pixels * factor;
        Window { x: (side - width) / 2, y: (side - width) / 2, width, height: width, factor }
    };
    let mut picture = scope.complete(middle(factor))?;
    album.add(&picture, "complete", factor)?;
    for step in 1..=3u32 {
        let by = (pixels / 8 * factor).min(side - picture.window.x - picture.window.width);
        picture = scope.moved(&picture, by, 0)?;
        album.add(&picture, "partial", step)?;
    }
    while factor > 1 {
        factor /= 2;
        picture = scope.complete(middle(factor))?;
        album.add(&picture, "zoom", factor)?;
    }
    Ok(())
}
