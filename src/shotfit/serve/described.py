"""The interface as a page for people, made of its OpenAPI description: nothing of it is loaded from
elsewhere, and it runs nothing."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from shotfit.system.html_page import escaped, section, self_contained_page

Described = Mapping[str, Any]


def page(api: Described, address: str) -> str:
    """Every route of an application that answers at `address`, with a command that asks it."""
    schemas = api.get("components", {}).get("schemas", {})
    parts = [
        _route(method.upper(), path, route, schemas, address.rstrip("/"))
        for path, routes in api["paths"].items()
        for method, route in routes.items()
    ]
    about = f"{api['info']['title']} {api['info']['version']}; for programs: /openapi.json"
    return self_contained_page("A classifier behind HTTP", about, parts)


def _route(method: str, path: str, route: Described, schemas: Described, address: str) -> str:
    parts = [f"<p>{escaped(route.get('description', ''))}</p>"]
    parts.append(_code(_command(method, path, route, schemas, address)))
    parameters = route.get("parameters", [])
    told = [(one["name"], one["description"]) for one in parameters if "description" in one]
    parts.append(_list(told))
    for name, example in _answers(route).items():
        text = json.dumps(example["value"], ensure_ascii=False)
        parts.append(f"<p>Answer, {escaped(name)}:</p>{_code(text)}")
    statuses = [(code, said["description"]) for code, said in route["responses"].items()]
    parts.append(_list([status for status in statuses if status[0] != "200"]))
    return section(f"{method} {path}", "\n".join(parts))


def _code(text: str) -> str:
    return f"<pre><code>{escaped(text)}</code></pre>"


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    items = [f"<li><code>{escaped(key)}</code>: {escaped(what)}</li>" for key, what in pairs]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _answers(route: Described) -> Described:
    content = route["responses"].get("200", {}).get("content", {})
    return content.get("application/json", {}).get("examples", {})


def _command(method: str, path: str, route: Described, schemas: Described, address: str) -> str:
    """The request with curl, with the first example of its body."""
    words = ["curl"] + ([] if method in ("GET", "POST") else ["-X", method])
    guarded = any(one["name"].lower() == "authorization" for one in route.get("parameters", []))
    token = [' -H "Authorization: Bearer $TOKEN"'] if guarded else []
    for kind, described in route.get("requestBody", {}).get("content", {}).items():
        schema = schemas.get(described["schema"].get("$ref", "").rpartition("/")[2], {})
        if kind == "multipart/form-data":
            words += [word for field in schema["properties"] for word in ("-F", f"{field}=@a.jpg")]
        else:
            example = json.dumps(schema.get("examples", [{}])[0])
            words += ["-H", f"Content-Type: {kind}", "-d", example]
    shown = shlex.join(words) + "".join(token)
    return f"{shown} {address}{path.replace('{name}', 'zebra')}"
