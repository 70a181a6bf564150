"""Steps for handlers of `leasehold run`, with nothing but Python's standard library. Copy it beside your app.

    job = leasehold.Job.of_request(self.headers)         # in an app, from the request's headers
    job = leasehold.Job.of_environment()                 # in a program

    charge = job.step("charge", lambda key: bank.charge(cents, idempotency_key=key))
    job.step_once("mail", lambda key: mail.send(charge))

A step runs and its result, which must be JSON, is recorded; the next attempt gets the result and does not run it again. One
whose result is none is recorded too, and the message dead-lettered: nobody knows what to go on with.
The key is for the API that the step calls: it is the same on every attempt. A name is good for one step of a run: in a loop,
f"line-{number}". A second use of it is refused, and the message dead-lettered.

Of steps in threads, wait for all before you answer: your answer ends the run, and a step that is still at work may run again,
beside what is left of it.

A Stopped says that the run must not go on: let it end your handler with any failure. Whether that uses an attempt, or
is for good, is known to Leasehold already.
"""

import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request

TRIES = 5  # A reply can be lost; whatever is asked twice is done once.
PAUSE = 0.2  # Seconds, before the first of them; doubled each time.
TIMEOUT = 35  # Seconds. Leasehold itself gives up after 30.


class Stopped(Exception):
    """The run must not go on: it was told to stop, or a step may not run. `code` says why."""

    def __init__(self, code, what, permanent=False):
        super().__init__(f"{code}: {what}")
        self.code, self.permanent = code, permanent


class Refused(Exception):
    """To be raised in a step: it certainly took no effect, and never will under its key. The next attempt has a new one."""


class NotBegun(Exception):
    """To be raised in a step: nothing was done. Leaves no doubt about a `step_once`."""


class Job:
    """One run. Good for nothing when it is over."""

    def __init__(self, url, token, steps=None):
        if not url:
            raise Stopped("no_steps", "this run has no steps: GUARD=none, or LEASEHOLD_STEPS_ADDR=off")
        self._url, self._token = url, token
        # The results of the steps that earlier attempts recorded, by their names.
        self.recorded = json.loads(steps) if steps is not None else self._results()

    @classmethod
    def of_request(cls, headers):
        steps = headers.get("X-Leasehold-Steps")
        steps = steps if steps is None else urllib.parse.unquote(steps)
        return cls(headers.get("X-Leasehold-Job-Url"), headers.get("X-Leasehold-Job-Token"), steps)

    @classmethod
    def of_environment(cls):
        return cls(*(os.environ.get(f"LEASEHOLD_{name}") for name in ("JOB_URL", "JOB_TOKEN", "STEPS")))

    def step(self, name, work):
        """Runs `work(key)` and records what it returns, or returns what was recorded. After a crash in it, it runs again."""
        return self._step(name, work, {})

    def step_once(self, name, work):
        """As step, but never again: a crash in it, or an error other than Refused and NotBegun, leaves it to a person."""
        return self._step(name, work, {"once": True})

    def check(self):
        """What is known of the run, unless it was told to stop or lost its lease: before what must not be done twice."""
        return self._ask("GET", "")

    def extend(self, seconds):
        """Sees to it that at least so much time is left from now on, whatever HANDLER_TIMEOUT gives."""
        return self._ask("POST", "/deadline", json.dumps({"at_least": seconds}))

    def _step(self, name, work, how):
        path = "/steps/" + urllib.parse.quote(name, safe="")
        # The call has a name of its own: a repeated request is no second use of the step's name, which would be refused.
        begun = self._ask("POST", path, json.dumps({**how, "call": secrets.token_hex(16)}))
        if begun["recorded"]:
            return begun["result"]
        try:
            result = work(begun["key"])
        except Exception as error:
            known = {"refused": isinstance(error, Refused), "not_begun": isinstance(error, NotBegun)}
            self._ask("DELETE", path, json.dumps(known))
            raise
        try:
            text = json.dumps(result, allow_nan=False)
        except Exception as error:
            return self._not_kept(path, error)
        self._ask("PUT", path, text)
        self.recorded[name] = result
        return result

    def _not_kept(self, path, why):
        """The step took effect, whatever its result is: that is recorded, so that it never runs again, and refused."""
        try:
            self._ask("PUT", path + "?result=none")
        except Stopped as stopped:
            raise stopped from why

    def _results(self):
        steps = self._ask("GET", "")["steps"]
        return {name: step["result"] for name, step in steps.items() if "result" in step}

    def _ask(self, method, path, body=""):
        for tries_left in reversed(range(TRIES)):
            request = urllib.request.Request(
                self._url + path,
                method=method,
                data=None if method == "GET" else body.encode(),
                headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            )
            try:
                with OPENER.open(request, timeout=TIMEOUT) as reply:
                    return json.loads(reply.read() or "null")
            except urllib.error.HTTPError as error:
                with error:
                    told = json.load(error)
                raise Stopped(told["error"], f"{told['what']}; {told['mend']}", told["permanent"]) from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not tries_left:
                    raise Stopped("unreachable", f"{self._url} does not answer: {error}") from error
                time.sleep(PAUSE * 2 ** (TRIES - 1 - tries_left))


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # The worker is near: no proxy leads to it.
