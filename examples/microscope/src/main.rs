//! A digital microscope ("Impact of High Performance Sockets on Data Intensive Applications", section 2): a slide of several gigapixels, stored as
//! blocks, is looked at through a window that moves and zooms.
//!
//! ```text
//! clip x3      reads the blocks that the window touches, and cuts them to it
//! subsample x3 sums the pixels that fall on one pixel of the view
//! view x3      adds up what comes
//! frame        puts the views together: a picture
//! ```

mod filters;
mod frame;
mod slide;
#[cfg(test)]
mod tests;

use anyhow::Context;
use clap::{Parser, Subcommand};
use filters::Window;
use frame::{Picture, Scope};
use multirail::session::ListenConfig;
use multirail::transport::Transport;
use multirail::{Config, Token, service};
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
    /// The picture is laid N by N times, every second one mirrored, each a little lighter or darker by its place, so that no two of
    /// neighbouring blocks are the same and there are no seams in the tissue. A block of the slide is one such picture.
    Grow {
        /// The picture: PNG, RGB of 8 bits
        picture: PathBuf,
        /// Where the slide goes
        slide: PathBuf,
        /// So many in each direction: 96 of 512 pixels are 2.4 gigapixels, 7.2 GB
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
        /// Hosts: the copies of each filter are given to them in turn [default: all in this process]
        #[arg(long, value_delimiter = ',')]
        hosts: Vec<String>,
        /// What carries the edges between hosts: tcp, shm or striped [default: the best]
        #[arg(long)]
        transport: Option<Transport>,
        /// Copies of each filter
        #[arg(long, default_value_t = 3)]
        copies: usize,
        /// Pixels of the picture in each direction
        #[arg(long, default_value_t = 768)]
        pixels: u32,
        /// Pictures go here
        #[arg(long, default_value = "microscope-pictures")]
        out: PathBuf,
        /// File with the token that the hosts were started with
        #[arg(long)]
        token_file: Option<PathBuf>,
    },
}

fn config(token_file: Option<&PathBuf>) -> anyhow::Result<Config> {
    let token = token_file.map(|file| Token::from_file(file)).transpose()?;
    Ok(Config { token, ..Config::default() })
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
            let listen = ListenConfig { address: listen, insecure_no_token: false, session };
            let serve = service::ServeConfig { listen, root: root.clone() };
            let ready = |address| println!("listening on {address}");
            service::block_on(service::serve_filters(serve, filters::all(root), ready))?;
            Ok(())
        }
        Command::Tour { slide, hosts, transport, copies, pixels, out, token_file } => {
            std::fs::create_dir_all(&out).with_context(|| format!("--out {}", out.display()))?;
            let config = config(token_file.as_ref())?;
            let mut scope = Scope::start(config, &slide, &hosts, transport, copies)?;
            tour(&mut scope, pixels, &out)
        }
    }
}

/// What somebody at a microscope does.
fn tour(scope: &mut Scope, pixels: u32, out: &std::path::Path) -> anyhow::Result<()> {
    let side = scope.side_pixels()?;
    // The whole slide in the picture, or as much as its pixels allow.
    let most = (side / pixels).max(1);
    let show = |picture: &Picture, name: &str, what: &str| -> anyhow::Result<()> {
        let path = out.join(name);
        picture.save(&path)?;
        let took = picture.took.as_secs_f64() * 1e3;
        println!("{what:<28} {took:9.1} ms  {:8.1} MB read  {}", picture.read_bytes as f64 / 1e6, path.display());
        Ok(())
    };
    let middle = |factor: u32| {
        let width = pixels * factor;
        Window { x: (side - width) / 2, y: (side - width) / 2, width, height: width, factor }
    };
    let mut factor = most.min(8);
    let mut picture = scope.complete(middle(factor))?;
    show(&picture, "1-complete.png", &format!("complete, 1 : {factor}"))?;
    for step in 1..=3u32 {
        let by = (pixels / 8 * factor).min(side - picture.window.x - picture.window.width);
        picture = scope.moved(&picture, by, 0)?;
        show(&picture, &format!("2-moved-{step}.png"), "partial, moved by an eighth")?;
    }
    while factor > 1 {
        factor = (factor / 2).max(1);
        picture = scope.complete(middle(factor))?;
        show(&picture, &format!("3-zoom-{factor}.png"), &format!("zoom to 1 : {factor}"))?;
    }
    Ok(())
}
