"""A server of the standard library with the interface of OpenAI: it knows the answers that it is
given, and fails as it is told."""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kvbench.served.address import Address
from kvbench.served.chat import messages
from kvbench.served.job import grid_of_questions
from kvbench.store.run_file import Job

MODEL = "/home/ada/models/stub-1b.gguf"  # as llama.cpp lists a model: by its place
Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class Stub:
    """What the server does, and what it was asked."""

    knows: Mapping[str, str] = field(default_factory=dict)  # right answers by the user's words
    forgets: Callable[[str], bool] = lambda words: False  # whose answers are lost
    model: str = MODEL
    continues: bool = True  # from a last message of the assistant
    repeats: bool = False  # that message at the head of its answer
    needs_fields: bool = False  # to go on from it
    takes_numbers: bool = True
    key: str = ""  # that it wants
    settings: dict[str, Any] = field(default_factory=lambda: {"build_info": "stub-1"})
    faults: deque[str] = field(default_factory=deque)  # of the next questions
    delay: float = 0.0  # seconds of each question
    questions: Counter[str] = field(default_factory=Counter)  # how often each was answered
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    most_at_once: int = 0
    lock: Any = field(default_factory=threading.Lock)
    url: str = ""
    _busy: int = 0

    def get(self, path: str) -> Reply:
        """Answers what a client looks up."""
        if path == "/v1/models":
            meta = {"n_params": 1_000_000, "n_ctx": 4096}
            entry = {"id": self.model, "owned_by": "stub", "created": time.time(), "meta": meta}
            return _json({"object": "list", "data": [entry]})
        if path == "/props":
            return _json({**self.settings, "model_path": self.model, "api_key": self.key})
        return _json({"error": {"message": "File Not Found"}}, 404)

    def post(self, path: str, body: dict[str, Any]) -> Reply:
        """Answers a question, or fails."""
        self.bodies.append(body)
        if path == "/v1/completions":
            return self._complete(body)
        turns = body["messages"]
        words = next(turn["content"] for turn in turns if turn["role"] == "user")
        is_question = words in self.knows
        if is_question and self.faults:
            return self._fail(self.faults.popleft(), body)
        if is_question:
            time.sleep(self.delay)
            with self.lock:
                self.questions[words] += 1
        return self._chat(body, turns, self._text(words))

    def _text(self, words: str) -> str:
        if words not in self.knows:
            return "Paris."
        return "nothing." if self.forgets(words) else f"{self.knows[words]}."

    def _chat(self, body: dict[str, Any], turns: Sequence[dict[str, str]], text: str) -> Reply:
        is_asked_to = not self.needs_fields or bool(body.get("continue_final_message"))
        tokens = 20 + len(" ".join(turn["content"] for turn in turns).split())
        last = turns[-1]
        if last["role"] == "assistant":
            if self.continues and is_asked_to:
                text = f"{last['content']} {text}" if self.repeats else f" {text}"
            else:
                tokens += 5  # of the end of a turn, and the beginning of another
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": tokens}
        return _json({"model": self.model, "choices": [choice], "usage": usage})

    def _complete(self, body: dict[str, Any]) -> Reply:
        if not self.takes_numbers or not isinstance(body["prompt"], list):
            return _json({"error": {"message": "prompt is no text"}}, 400)
        with self.lock:
            self.questions[str(body["prompt"])] += 1
        choice = {"index": 0, "finish_reason": "length", "text": " Oslo. And more"}
        usage = {"prompt_tokens": len(body["prompt"])}
        return _json({"model": self.model, "choices": [choice], "usage": usage})

    def _fail(self, fault: str, body: dict[str, Any]) -> Reply:
        if fault == "cut":
            status, headers, content = _json({"choices": [], "padding": "x" * 100})
            return status, {**headers, "Content-Length": str(len(content) + 50)}, content
        if fault == "half":
            return 200, {}, b'{"choices": [{"mess'
        if fault == "slow":
            time.sleep(3)
            return _json({"error": "late"}, 500)
        if fault == "swap":
            self.model = "another-model"
            return self._chat(body, body["messages"], "Paris.")
        if fault == "elsewhere":
            return 307, {"Location": "http://127.0.0.1:9/v1/chat/completions"}, b""
        # What a server says may hold what it was sent.
        error = {"error": {"message": f"wait, {self.key} of {self.url}"}}
        return _json(error, int(fault), {"Retry-After": "0"})


def _json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return status, headers or {}, json.dumps(content).encode()


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            self._send(stub.get(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with stub.lock:
                stub._busy += 1
                stub.most_at_once = max(stub.most_at_once, stub._busy)
            try:
                self._send(stub.post(self.path, body))
            finally:
                with stub.lock:
                    stub._busy -= 1

        def _send(self, reply: Reply) -> None:
            status, headers, content = reply
            sent = dict(self.headers)
            stub.headers.append(sent)
            if stub.key and sent.get("Authorization") != f"Bearer {stub.key}":
                error = {"error": {"message": f"wrong key: {sent.get('Authorization')}"}}
                status, headers, content = _json(error, 401)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            if int(headers.get("Content-Length", 0)) > len(content):
                self.close_connection = True

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that were killed."""


@contextmanager
def running(stub: Stub) -> Iterator[Stub]:
    """Runs the server on the loopback address while the body runs."""
    server = _Server(("127.0.0.1", 0), _handler(stub))
    stub.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def right_answers(tasks: str, limit: int) -> dict[str, str]:
    """Returns the right answer to each question of a run, by the words that ask for it."""
    job = Job(tasks=tasks, limit=limit)
    answers = {}
    for begins in (True, False):
        grid = grid_of_questions(job, Address.read("http://x/v1"), begins)
        for task, contexts in grid.tasks:
            for index in range(contexts):
                example = grid.example(task, index)
                for question in example.questions:
                    user = next(
                        turn["content"]
                        for turn in messages(task, example, question)
                        if turn["role"] == "user"
                    )
                    answers[user] = question.golds[0]
    return answers
