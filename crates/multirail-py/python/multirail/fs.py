"""`mr://HOST[:PORT]/PATH` for fsspec, and so for pandas, dask and pyarrow.

Reading takes the ranges that a program asks for. Writing goes to a temporary file of this host, and
when the file is closed to the server, over all rails. fsspec finds this module by an entry point.
"""

import contextlib
import os
import tempfile
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile
from fsspec.utils import isfilelike, stringify_path

from multirail import _multirail, files
from multirail._multirail import Token
from multirail.errors import CopyFailed, TokenError

# More than a file has.
_ALL = 1 << 62
# The mode of new files.
_MODE = 0o644

# The folders of servers. Those with the same host, rails and token share their sessions.
_folders: dict[tuple[str, str, Token], _multirail.Folder] = {}


class MultirailFileSystem(AbstractFileSystem):
    """The folder that a host serves. Paths have no slash at the beginning; the folder is `""`.

    `host` is that of the URL, with the port unless it is 7717. `token_file` is the path of a token,
    which each process reads, or `token` is a `multirail.Token`, with which the object cannot be
    pickled. `rails` is that of `multirail.connect`.

    Several threads can call at once; each takes a session of its own, and at most four are kept.
    After a fork, calls raise `Forked`. Ctrl-C ends a call. What the server refuses is an `OSError`,
    as `FileNotFoundError` and `PermissionError`; exceptions of sessions are those of
    `multirail.connect`.
    """

    protocol = "mr"
    root_marker = ""
    # The cache of fsspec does not tell one token from another. Sessions are shared all the same.
    cachable = False

    def __init__(
        self,
        host: str,
        *,
        token: Token | None = None,
        token_file: files.Path | None = None,
        rails: str = "",
        **options: Any,
    ) -> None:
        super().__init__(host=host, rails=rails, **options)
        if token_file is not None:
            token = Token.from_file(token_file)
        elif not isinstance(token, Token):
            raise TokenError(
                f"mr://{host} needs a token: pass token_file='PATH' of the server's token, or "
                "token=multirail.Token(…), in pandas and dask in storage_options",
                host,
            )
        self.host, self.rails, self.token, self.token_file = host, rails, token, token_file
        # Two threads may make one each; one of them is used by both afterwards.
        key = (host, rails, token)
        made = _folders.get(key) or _multirail.Folder(host, token=token, rails=rails)
        self._folder = _folders.setdefault(key, made)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.token_file is None:
            raise TypeError(
                f"mr://{self.host} was opened with token=, and a secret is not pickled: pass "
                "token_file='PATH', which each process reads"
            )
        return _make, (self.host, self.token_file, self.rails)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultirailFileSystem) and self._folder is other._folder

    def __hash__(self) -> int:
        return hash(self._folder)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = stringify_path(path)
        remote = files.split_url(path)
        return (remote[1] if remote else path).strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        remote = files.split_url(path)
        return {"host": remote[0]} if remote else {}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return f"mr://{self.host}/{self._strip_protocol(name)}"

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        """The entry of a path: `name`, `type`, `size` in bytes, `mtime`, `mode` and `islink`."""
        path = self._strip_protocol(path)
        return self._folder.stat(path) | {"name": path}

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """The entries of a directory, or that of a file."""
        path = self._strip_protocol(path)
        try:
            entries = self._folder.list(path)
        except NotADirectoryError:
            entries = [self.info(path)]
        else:
            entries.sort(key=lambda entry: entry["name"])
            for entry in entries:
                entry["name"] = f"{path}/{entry['name']}" if path else entry["name"]
        return entries if detail else [entry["name"] for entry in entries]

    def _type(self, path: str) -> str | None:
        """The type of an entry, or None if there is none. Other errors are raised."""
        try:
            return self.info(path)["type"]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path: str, **_options: Any) -> bool:
        """Whether something has the path. An error of the session is raised."""
        return self._type(path) is not None

    def isdir(self, path: str) -> bool:
        """Whether it is a directory."""
        return self._type(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Whether it is a file."""
        return self._type(path) == "file"

    def modified(self, path: str) -> datetime:
        """When the file was changed."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: Any
    ) -> bytes:
        """The bytes of a file, or a range of them. Negative numbers count from the end."""
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.info(path)["size"] or 0
            start, end = (
                max(at + size, 0) if at is not None and at < 0 else at for at in (start, end)
            )
        start = start or 0
        length = _ALL if end is None else max(end - start, 0)
        return self._folder.read(self._strip_protocol(path), start, length)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = "default",
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> AbstractBufferedFile:
        if mode not in ("rb", "wb", "xb"):
            raise ValueError(f"mode {mode!r}: files of mr:// are opened with rb, wb or xb")
        options |= {"block_size": block_size or "default", "cache_options": cache_options}
        if mode == "rb":
            there = self.info(path)
            if there["type"] == "directory":
                raise IsADirectoryError(f"{self.unstrip_protocol(path)} is a directory")
            return _Reader(self, path, mode, **options | {"size": there["size"] or 0})
        self._check_new(path, is_new=mode == "xb")
        return _Writer(self, path, "wb", autocommit=autocommit, **options)

    def _check_new(self, path: str, is_new: bool = False) -> None:
        """Raises what would be raised when the file has been written."""
        there = self._type(path)
        if there == "directory":
            raise IsADirectoryError(f"{self.unstrip_protocol(path)} is a directory")
        if there is not None and is_new:
            raise FileExistsError(f"{self.unstrip_protocol(path)} exists")
        if there is None:
            # Raises FileNotFoundError.
            parent = self.info(self._parent(path))
            if parent["type"] != "directory":
                raise NotADirectoryError(f"{self.unstrip_protocol(parent['name'])} is a file")

    def _copy(self, source: str, destination: str, callback: Any = DEFAULT_CALLBACK) -> None:
        def tell(done: int, total: int | None) -> None:
            if total is not None:
                callback.set_size(total)
            callback.absolute_update(done)

        try:
            files.cp(
                source,
                destination,
                token=self.token,
                rails=self.rails,
                checksum=True,
                progress=None if callback is DEFAULT_CALLBACK else tell,
            )
        except CopyFailed as error:
            raise OSError(f"{source} was not copied to {destination}: {error}") from error

    def put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **_options: Any,
    ) -> None:
        """Copy a file of this host to the server, as `multirail.cp`. Makes its directories."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        os.stat(lpath)
        rpath = self._strip_protocol(rpath)
        self.makedirs(self._parent(rpath), exist_ok=True)
        self._check_new(rpath, is_new=mode == "create")
        self._copy(os.path.abspath(lpath), self.unstrip_protocol(rpath), callback)

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **options: Any,
    ) -> None:
        """Copy a file of the server to this host, as `multirail.cp`. Makes its directories."""
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **options)
            return
        lpath = os.path.abspath(lpath)
        if self.info(rpath)["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        if os.path.isdir(lpath):
            raise IsADirectoryError(f"{lpath} is a directory")
        os.makedirs(os.path.dirname(lpath), exist_ok=True)
        self._copy(self.unstrip_protocol(rpath), lpath, callback)

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        """Make a directory."""
        path = self._strip_protocol(path)
        if create_parents and path:
            self.makedirs(self._parent(path), exist_ok=True)
        self._folder.make_dir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory, and those that it is in."""
        path = self._strip_protocol(path)
        there = self._type(path)
        if there == "directory" and exist_ok:
            return
        if there is not None:
            raise FileExistsError(f"{self.unstrip_protocol(path)} exists")
        self.makedirs(self._parent(path), exist_ok=True)
        # Another program may have made it.
        with contextlib.suppress(FileExistsError) if exist_ok else contextlib.nullcontext():
            self._folder.make_dir(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        if self.info(path)["type"] != "directory":
            raise NotADirectoryError(f"{self.unstrip_protocol(path)} is not a directory")
        self._folder.remove(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        self._rm(path)

    def _rm(self, path: str) -> None:
        # A link to nothing can be removed, and so is not looked at.
        if self._type(path) == "directory":
            raise IsADirectoryError(
                f"{self.unstrip_protocol(path)} is a directory: pass recursive=True"
            )
        self._folder.remove(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and with `recursive` directories. The server removes what is below them."""
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for each in self.expand_path(path):
            if recursive:
                self._folder.remove(each, recursive=True)
            else:
                self._rm(each)


def _make(host: str, token_file: files.Path, rails: str) -> MultirailFileSystem:
    return MultirailFileSystem(host, token_file=token_file, rails=rails)


class _Reader(AbstractBufferedFile):
    """A file that is read in ranges."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        content = self.fs._folder.read(self.path, start, end - start)
        if len(content) < min(end, self.size) - start:
            raise OSError(f"{self.fs.unstrip_protocol(self.path)} became shorter while it was read")
        return content


class _Writer(AbstractBufferedFile):
    """A file that is written to a temporary one, and copied to the server when it is closed."""

    _spool: Any = None

    def _initiate_upload(self) -> None:
        self._spool = tempfile.NamedTemporaryFile(prefix="multirail-", delete=False)  # noqa: SIM115
        os.fchmod(self._spool.fileno(), _MODE)

    def _upload_chunk(self, final: bool = False) -> bool:
        self._spool.write(self.buffer.getvalue())
        if final:
            self._spool.flush()
            if self.autocommit:
                self.commit()
        return True

    def commit(self) -> None:
        """Copy what was written to the server, where it replaces the file at once."""
        try:
            self.fs._copy(self._spool.name, self.fs.unstrip_protocol(self.path))
        finally:
            self.discard()

    def discard(self) -> None:
        """Forget what was written."""
        if self._spool is not None:
            self._spool.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._spool.name)
            self._spool = None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            # What is not complete gets no name.
            self.discard()
            self.closed = True
