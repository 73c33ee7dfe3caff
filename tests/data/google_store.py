"""A stand-in for Google Cloud Storage: the part of its XML API that a client of objects uses, in memory.

No emulator that can be installed here has preconditions and multipart uploads in the XML API, so this follows the
reference of Google (https://cloud.google.com/storage/docs/xml-api/reference-methods). What it refuses is what a
mistake of ours would be: a request without the token, a precondition that is not known. An empty TOKEN: nobody has one.

    google_store.py serve PORT TOKEN
    google_store.py keys PORT TOKEN
"""

import hashlib
import re
import sys
import threading
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

BUCKET = "traces"
PAGE = 100
objects: dict[str, tuple[bytes, int, str, str]] = {}
uploads: dict[str, dict[int, bytes]] = {}
generations = iter(range(1, 1 << 60))
lock = threading.Lock()


def store(key: str, body: bytes, expected: str | None) -> tuple[int, dict[str, str]]:
    with lock:
        now = str(objects[key][1]) if key in objects else "0"
        if expected is not None and expected != now:
            return 412, {}
        modified = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        tag = '"' + hashlib.md5(body).hexdigest() + '"'
        objects[key] = (body, next(generations), tag, modified)
        return 200, {"ETag": tag, "x-goog-generation": str(objects[key][1])}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b"", length=None):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        given = self.headers.get("Authorization", "").removeprefix("Bearer").strip()
        if given != self.server.token:
            return self.refuse(401, "AuthenticationRequired")
        if bucket != BUCKET:
            return self.refuse(404, "NoSuchBucket")
        unknown = {"if-none-match", "if-match", "x-amz-copy-source"} & {name.lower() for name in self.headers}
        if unknown:
            return self.refuse(400, f"NotOfThisInterface{unknown}")
        if not key:
            return self.list(query)
        if "uploads" in query or "uploadId" in query:
            return self.multipart(key, query, body)
        if self.command == "PUT":
            status, headers = store(key, body, self.headers.get("x-goog-if-generation-match"))
            return self.answer(status, headers) if status == 200 else self.refuse(status, "PreconditionFailed")
        if self.command == "DELETE":
            with lock:
                gone = objects.pop(key, None) is None
            return self.refuse(404, "NoSuchKey") if gone else self.answer(204)
        return self.read(key)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

    def read(self, key):
        if key not in objects:
            return self.refuse(404, "NoSuchKey")
        body, generation, tag, _ = objects[key]
        headers = {"ETag": tag, "x-goog-generation": str(generation), "Last-Modified": formatdate(usegmt=True)}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not wanted:
            return self.answer(200, headers, body, len(body))
        begin, end = int(wanted[1]), min(int(wanted[2] or len(body) - 1) + 1, len(body))
        if begin >= len(body):
            return self.refuse(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(body)}"
        return self.answer(206, headers, body[begin:end])

    def list(self, query):
        assert query.get("list-type") == "2", query
        prefix, after = query.get("prefix", ""), query.get("start-after", "")
        after = query.get("continuation-token", after)
        with lock:
            found = sorted(key for key in objects if key.startswith(prefix) and key > after)
            items = [(key, objects[key]) for key in found[:PAGE]]
        text = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>"
            f"<ETag>{escape(tag)}</ETag><Size>{len(body)}</Size></Contents>"
            for key, (body, _, tag, modified) in items
        )
        if len(found) > PAGE:
            text += f"<NextContinuationToken>{escape(found[PAGE - 1])}</NextContinuationToken>"
        self.answer(200, {}, f"<ListBucketResult>{text}</ListBucketResult>".encode())

    def multipart(self, key, query, body):
        upload = query.get("uploadId")
        if upload is None:
            upload = f"upload/{next(generations)}"
            uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self.answer(200, {}, text.encode())
        if upload not in uploads:
            return self.refuse(404, "NoSuchUpload")
        if self.command == "PUT":
            uploads[upload][int(query["partNumber"])] = body
            return self.answer(200, {"ETag": '"' + hashlib.md5(body).hexdigest() + '"'})
        if self.command == "DELETE":
            del uploads[upload]
            return self.answer(204)
        parts = uploads.pop(upload)
        named = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())]
        assert named == sorted(parts), (named, sorted(parts))
        _, headers = store(key, b"".join(parts[number] for number in named), None)
        tag = escape(headers.pop("ETag"))
        text = f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
        return self.answer(200, headers, text.encode())


def main():
    command, port, token = sys.argv[1:]
    if command == "serve":
        server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
        server.token = token
        server.serve_forever()
    after = ""
    while True:
        query = urllib.parse.urlencode({"list-type": 2, "start-after": after})
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}?{query}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        keys = re.findall("<Key>(.*?)</Key>", urllib.request.urlopen(request).read().decode())
        if not keys:
            break
        print("\n".join(keys))
        after = keys[-1]


main()
