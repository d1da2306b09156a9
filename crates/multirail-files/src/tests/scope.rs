//! A server for its own user: every path that the user can name.

use super::*;

/// A copy to and from paths that a served root would refuse.
#[test]
fn a_server_for_its_own_user_takes_every_path_of_the_user() {
    let temp = Temp::new();
    let from = temp.0.join("from");
    std::fs::create_dir(from.join("tree")).unwrap();
    std::fs::write(from.join("tree/file"), "x").unwrap();
    std::os::unix::fs::symlink(temp.0.join("to"), temp.0.join("link")).unwrap();
    let options = Options::new().recursive(true);

    // An absolute destination behind an absolute symbolic link, with dots in its path.
    let destination = temp.0.join("from/../link/new");
    let put = async |session: &mut Session| put(session, &[from.join("tree")], &destination, &options).await;
    let report = with_session(async |session| answer(session).await, put).unwrap();
    assert_eq!((report.files, report.failed_count), (1, 0), "{report:?}");
    assert_eq!(std::fs::read(temp.0.join("to/new/tree/file")).unwrap(), b"x");

    let source = temp.0.join("link/new/tree/");
    let get = async |session: &mut Session| get(session, &[source], &temp.0.join("back"), &options).await;
    let report = with_session(async |session| answer(session).await, get).unwrap();
    assert_eq!((report.files, report.failed_count), (1, 0), "{report:?}");
    assert_eq!(std::fs::read(temp.0.join("back/file")).unwrap(), b"x");
}

async fn answer(session: &mut Session) -> Result<(), Error> {
    match multirail_net::request::receive_request(session).await?.parse()? {
        FilesRequest::Put(request) => serve_put(session, &Scope::User, request, &Notes::default()).await,
        FilesRequest::Get(request) => serve_get(session, &Scope::User, request, &Notes::default()).await,
        FilesRequest::Browse(request) => {
            crate::browse::serve(session, (&Scope::User, &Permissions::default()), request, &Notes::default()).await
        }
    }
}
