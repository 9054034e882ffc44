"""Reads the files of Kubernetes objects that people give: the resource, and a ConfigMap beside it."""

from __future__ import annotations

import yaml

from couchbase_lm_operator import names
from couchbase_lm_operator.cli.failure import BadInputError
from couchbase_lm_operator.cli.model_config import read_text
from couchbase_lm_operator.core.model.model_reading import parse_model_config
from couchbase_lm_operator.core.observed import MalformedModelConfig, Manifest, Missing, ModelConfig


def read_documents(path: str) -> list[Manifest]:
    """Return the objects of a YAML file with one or more documents.

    Raises:
        BadInputError: it is not YAML, or one document is not an object of Kubernetes.
    """
    try:
        found = [document for document in yaml.safe_load_all(read_text(path)) if document is not None]
    except yaml.YAMLError as error:
        raise BadInputError(f"{path} is not YAML: {error}") from error
    except RecursionError as error:
        raise BadInputError(f"{path} is nested too deeply.") from error
    for position, document in enumerate(found):
        if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict) or "kind" not in document:
            raise BadInputError(f"{path}: document {position + 1} has no kind or no metadata.")
    return found


def only_resource(documents: list[Manifest], path: str) -> Manifest:
    """Return the one resource of ours in a file.

    Raises:
        BadInputError: there is none, there are several, or it has another version or no name.
    """
    found = [document for document in documents if document["kind"] == names.KIND]
    if len(found) != 1:
        raise BadInputError(f"{path} has {len(found)} objects of kind {names.KIND}; give a file with one.")
    resource = found[0]
    if resource.get("apiVersion") != names.API_VERSION:
        raise BadInputError(f"{path}: apiVersion is {resource.get('apiVersion')!r}; expected is {names.API_VERSION}.")
    if not isinstance(resource["metadata"].get("name"), str):
        raise BadInputError(f"{path}: metadata.name is missing.")
    return resource


def config_from_map(
    documents: list[Manifest], name: str, key: str, namespace: str
) -> ModelConfig | MalformedModelConfig | Missing:
    """Return the model's configuration out of a ConfigMap in the same file."""
    for document in documents:
        metadata = document["metadata"]
        if document["kind"] != "ConfigMap" or metadata.get("name") != name:
            continue
        if metadata.get("namespace", namespace) != namespace:
            continue
        text = (document.get("data") or {}).get(key)
        if isinstance(text, str):
            return parse_model_config(text, f"key {key} of ConfigMap {name}")
        return Missing(f"key {key} in ConfigMap {name} of spec.model.config.configMapRef")
    return Missing(f"ConfigMap {name} of spec.model.config.configMapRef")
