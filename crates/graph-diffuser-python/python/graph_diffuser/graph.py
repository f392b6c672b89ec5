"""Graphs in memory, and their conversion from and to other libraries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _native
from ._errors import InvalidInputError

if TYPE_CHECKING:
    import networkx

#: Columns of features: a float32 or int64 array, or nested lists of strings.
Table: TypeAlias = "npt.NDArray[np.float32] | npt.NDArray[np.int64] | list[list[str]]"

_TARGET_ATTRIBUTES = ("y", "target")
_LABEL_ATTRIBUTES = ("y", "label")


def to_numpy(values: Any) -> npt.NDArray[Any]:
    """Converts an array, a list or a CPU tensor to an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)


class Graph:
    """A graph: nodes, directed edges, features and targets.

    Args:
        edge_index: Integer array of shape ``[2, m]`` with the source and target of each edge, as in
            PyTorch Geometric. An undirected edge is listed in both directions.
        num_nodes: Number of nodes; default: from the features, or one more than the largest node
            of an edge.
        node_features: One row per node: an array of floats (real-valued features), of integers or
            strings (categories), or a dictionary of named columns.
        edge_features: One row per edge, like ``node_features``.
        y: Target of the graph: a number, a class name, or a list of numbers; NaN or None if
            missing.
        node_y: Class of each node, an integer or a string; None if missing.
        links: Node pairs to predict, of shape ``[k, 2]``.
        directed: If false, the reverse of every edge is added.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        node_split: One of these or None for each node.

    >>> import graph_diffuser as gd
    >>> ring = gd.Graph([[0, 1, 2], [1, 2, 0]], node_features=["C", "C", "O"], directed=False)
    >>> ring
    Graph(num_nodes=3, num_edges=3, node_features=1, edge_features=0, directed=False)
    """

    __slots__ = (
        "num_nodes", "edge_index", "directed", "y", "node_y", "links", "split", "node_split",
        "node_columns", "edge_columns", "_node_tables", "_edge_tables",
    )

    num_nodes: int
    edge_index: npt.NDArray[np.int64]
    directed: bool
    y: Any
    node_y: list[Any] | None
    links: list[list[int]] | None
    split: str | None
    node_split: list[str | None] | None
    #: Names of the feature columns, if they were given.
    node_columns: tuple[str, ...]
    edge_columns: tuple[str, ...]
    _node_tables: tuple[Table, ...]
    _edge_tables: tuple[Table, ...]

    def __init__(
        self,
        edge_index: Any,
        num_nodes: int | None = None,
        node_features: Any = None,
        edge_features: Any = None,
        *,
        y: Any = None,
        node_y: Iterable[Any] | None = None,
        links: Any = None,
        directed: bool = True,
        split: str | None = None,
        node_split: Iterable[str | None] | None = None,
    ) -> None:
        edges = to_numpy(edge_index)
        if edges.size == 0:
            edges = np.zeros((2, 0), dtype=np.int64)
        if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
            raise InvalidInputError(
                f"edge_index is {edges.dtype} of shape {list(edges.shape)}, "
                "expected integers of shape [2, m]",
                "use Graph.from_edges for a list of node pairs",
            )
        self.edge_index = np.ascontiguousarray(edges, dtype=np.int64)
        count = self.edge_index.shape[1]
        self._edge_tables, self.edge_columns = _tables(edge_features, count, "edge")
        if num_nodes is None:
            num_nodes = _num_rows(node_features)
        if num_nodes is None:
            num_nodes = int(self.edge_index.max()) + 1 if count else 0
        self.num_nodes = int(num_nodes)
        if self.num_nodes < 1:
            raise InvalidInputError("the graph has no nodes", "pass num_nodes or node_features")
        if count and (self.edge_index.min() < 0 or self.edge_index.max() >= self.num_nodes):
            raise InvalidInputError(
                f"edge_index has nodes from {self.edge_index.min()} to {self.edge_index.max()}, "
                f"but the graph has {self.num_nodes} nodes",
                "nodes are numbered from 0",
            )
        self._node_tables, self.node_columns = _tables(node_features, self.num_nodes, "node")
        self.directed = bool(directed)
        self.y = _plain(y)
        self.node_y = None if node_y is None else [_plain(value) for value in node_y]
        if self.node_y is not None and len(self.node_y) != self.num_nodes:
            raise InvalidInputError(
                f"{len(self.node_y)} node targets for {self.num_nodes} nodes"
            )
        self.links = None if links is None else to_numpy(links).reshape(-1, 2).tolist()
        self.split = split
        self.node_split = None if node_split is None else list(node_split)

    @property
    def num_edges(self) -> int:
        """Number of edges as listed in ``edge_index``."""
        return int(self.edge_index.shape[1])

    @property
    def node_features(self) -> Any:
        """Node features: None, one array, or a tuple of arrays."""
        return _features(self._node_tables)

    @property
    def edge_features(self) -> Any:
        """Edge features: None, one array, or a tuple of arrays."""
        return _features(self._edge_tables)

    def __repr__(self) -> str:
        nodes, edges = (_num_columns(tables) for tables in (self._node_tables, self._edge_tables))
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"node_features={nodes}, edge_features={edges}, directed={self.directed})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return (
            self.num_nodes == other.num_nodes
            and self.directed == other.directed
            and np.array_equal(self.edge_index, other.edge_index)
            and _equal_tables(self._node_tables, other._node_tables)
            and _equal_tables(self._edge_tables, other._edge_tables)
            and json.dumps(self._targets()) == json.dumps(other._targets())
        )

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def from_edges(cls, edges: Any, num_nodes: int | None = None, **options: Any) -> Graph:
        """Creates an undirected graph from node pairs of shape ``[m, 2]``, each listed once.

        >>> import graph_diffuser as gd
        >>> gd.Graph.from_edges([[0, 1], [1, 2]]).edge_index.tolist()
        [[0, 1], [1, 2]]
        """
        pairs = to_numpy(edges)
        if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
            raise InvalidInputError(
                f"edges have shape {list(pairs.shape)}, expected [m, 2]",
                "use graph_diffuser.Graph for an edge_index of shape [2, m]",
            )
        return cls(pairs.reshape(-1, 2).T, num_nodes, **{"directed": False, **options})

    @classmethod
    def from_smiles(cls, smiles: str, *, featurizer: str = "ogb", y: Any = None) -> Graph:
        """Creates the graph of a molecule, with the features of OGB or the atom types of ZINC.

        >>> import graph_diffuser as gd
        >>> gd.Graph.from_smiles("CCO").node_features.shape
        (3, 9)
        """
        nodes, edges, atoms, bonds = _native.smiles_to_arrays(smiles, featurizer)
        return cls(edges, nodes, atoms, bonds, y=y)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """Converts a ``torch_geometric.data.Data`` object; torch is not imported.

        Integer features are categories and float features real-valued. ``y`` is the class of each
        node if it has one integer per node, or if the nodes have masks.
        """
        tables = [data[key] for key in ("edge_attr",) if _has(data, key)]
        if _has(data, "edge_weight"):
            tables.append(to_numpy(data["edge_weight"]).astype(np.float32).reshape(-1, 1))
        edges = data["edge_index"] if _has(data, "edge_index") else np.zeros((2, 0), np.int64)
        num_nodes = int(data.num_nodes)
        y, node_y = None, None
        node_split = _masks_to_split(data, num_nodes)
        if _has(data, "y"):
            values = to_numpy(data["y"])
            is_per_node = values.shape == (num_nodes,) and num_nodes > 1
            if node_split is not None or (is_per_node and values.dtype.kind in "iu"):
                node_y = values.reshape(-1).tolist()
            else:
                y = values.reshape(-1)
                y = y[0] if y.size == 1 else y
        return cls(
            edges,
            num_nodes,
            data["x"] if _has(data, "x") else None,
            tuple(tables) if tables else None,
            y=y,
            node_y=node_y,
            node_split=node_split,
        )

    @classmethod
    def from_networkx(
        cls,
        graph: networkx.Graph[Any],
        node_attrs: Sequence[str] | None = None,
        edge_attrs: Sequence[str] | None = None,
        *,
        categorical: Sequence[str] = (),
    ) -> Graph:
        """Converts a NetworkX graph.

        Args:
            graph: Nodes may have any labels; they are numbered in the order of insertion.
            node_attrs: Attributes used as node features; default: all, in alphabetical order.
                Numbers are real-valued features, strings categories, and a list of numbers becomes
                one column per item.
            edge_attrs: Attributes used as edge features, like ``node_attrs``.
            categorical: Attributes whose integers are categories.

        The graph attribute ``y`` or ``target`` is the target of the graph, the node attribute ``y``
        or ``label`` the class of the node.
        """
        index = {node: number for number, node in enumerate(graph.nodes)}
        nodes = [graph.nodes[node] for node in graph.nodes]
        edges = [(source, target) for source, target in graph.edges()]
        edge_data = [data for _, _, data in graph.edges(data=True)]
        label = next((key for key in _LABEL_ATTRIBUTES if any(key in data for data in nodes)), None)
        target = next((key for key in _TARGET_ATTRIBUTES if key in graph.graph), None)
        pairs = [[index[source] for source, _ in edges], [index[end] for _, end in edges]]
        return cls(
            np.asarray(pairs, dtype=np.int64),
            len(nodes),
            _attributes(nodes, node_attrs, _LABEL_ATTRIBUTES, categorical, "node") or None,
            _attributes(edge_data, edge_attrs, (), categorical, "edge") or None,
            y=None if target is None else graph.graph[target],
            node_y=None if label is None else [data.get(label) for data in nodes],
            directed=graph.is_directed(),
        )

    def to_networkx(self) -> networkx.Graph[Any]:
        """Converts to a NetworkX graph with the features as attributes.

        Unnamed columns are called ``x0``, ``x1`` and so on.

        >>> import graph_diffuser as gd
        >>> gd.Graph.from_edges([[0, 1]], node_features=[0.5, 1.5]).to_networkx().nodes[1]
        {'x0': 1.5}
        """
        import networkx as nx

        graph = nx.DiGraph() if self.directed else nx.Graph()
        pairs = self.edge_index.T.tolist()
        if len({tuple(pair) for pair in pairs}) < len(pairs):
            graph = nx.MultiDiGraph() if self.directed else nx.MultiGraph()
        if self.y is not None:
            graph.graph["y"] = self.y
        for node, row in enumerate(_rows(self._node_tables, self.num_nodes)):
            graph.add_node(node, **dict(zip(_names(self.node_columns, row), row)))
            if self.node_y is not None:
                graph.nodes[node]["y"] = self.node_y[node]
        for (source, target), row in zip(pairs, _rows(self._edge_tables, len(pairs))):
            graph.add_edge(source, target, **dict(zip(_names(self.edge_columns, row), row)))
        return graph

    def _targets(self) -> dict[str, Any]:
        """Returns the keys of targets and splits of a JSON line."""
        keys: dict[str, Any] = {}
        if self.node_y is not None:
            keys["node_targets"] = self.node_y
        elif self.links is not None:
            keys["links"] = self.links
        else:
            keys["target"] = self.y
        if self.split is not None:
            keys["split"] = self.split
        if self.node_split is not None:
            keys["node_split"] = self.node_split
        return keys

    def _kinds(self) -> tuple[list[str], list[str]]:
        """Returns the kind of each node and edge feature column."""
        return _column_kinds(self._node_tables), _column_kinds(self._edge_tables)


def _has(data: Any, key: str) -> bool:
    return key in data and data[key] is not None


def _masks_to_split(data: Any, num_nodes: int) -> list[str | None] | None:
    split: list[str | None] = [None] * num_nodes
    names = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
    found = [key for key in names if _has(data, key)]
    for key in found:
        for node in np.flatnonzero(to_numpy(data[key]).reshape(num_nodes, -1)[:, 0]):
            split[int(node)] = names[key]
    return split if found else None


def _plain(value: Any) -> Any:
    """Converts a value to plain Python, with None for NaN."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (float, np.floating)):
        return None if np.isnan(value) else float(value)
    array = to_numpy(value)
    if array.ndim == 0:
        return array.item() if array.dtype.kind != "f" else _plain(float(array))
    return [_plain(item) for item in array.tolist()]


def _num_rows(features: Any) -> int | None:
    if features is None:
        return None
    if isinstance(features, Mapping):
        features = tuple(features.values())
    if isinstance(features, tuple):
        return len(features[0]) if features else None
    return len(features)


def _tables(features: Any, rows: int, what: str) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Converts features to tables of one type each, and returns the names of their columns."""
    if features is None:
        return (), ()
    names: list[str] = []
    tables: list[Table] = []
    if isinstance(features, Mapping):
        for name, column in features.items():
            found = _split_by_type(to_numpy(column), rows, f"{what} feature {name!r}")
            width = _num_columns(found)
            names += [str(name)] if width == 1 else [f"{name}_{item}" for item in range(width)]
            tables += found
    elif isinstance(features, tuple):
        for table in features:
            tables += _split_by_type(to_numpy(table), rows, f"{what} features")
    else:
        tables = _split_by_type(to_numpy(features), rows, f"{what} features")
    return tuple(tables), tuple(names)


def _split_by_type(values: npt.NDArray[Any], rows: int, what: str) -> list[Table]:
    """Converts an array of one or two dimensions to tables of one type each."""
    if values.ndim == 1:
        values = values.reshape(-1, 1)
    if values.ndim != 2 or values.shape[0] != rows:
        raise InvalidInputError(
            f"{what}: expected {rows} rows, found an array of shape {list(values.shape)}"
        )
    kind = values.dtype.kind
    if kind == "O":
        columns = [np.asarray(column.tolist()) for column in values.T]
        if any(column.dtype.kind == "O" for column in columns):
            raise InvalidInputError(f"{what}: values must be numbers or strings, without None")
        return [table for column in columns for table in _split_by_type(column, rows, what)]
    if kind in "US":
        return [values.astype(str).tolist()] if values.shape[1] else []
    if kind in "iu":
        return [np.ascontiguousarray(values, dtype=np.int64)] if values.shape[1] else []
    if kind in "fb":
        floats = np.ascontiguousarray(values, dtype=np.float32)
        if not np.isfinite(floats).all():
            row = int(np.flatnonzero(~np.isfinite(floats).all(axis=1))[0])
            raise InvalidInputError(f"{what} of row {row} are not finite")
        return [floats] if floats.shape[1] else []
    raise InvalidInputError(f"{what} have type {values.dtype}, expected numbers or strings")


def _attributes(
    items: list[dict[str, Any]],
    names: Sequence[str] | None,
    ignored: Sequence[str],
    categorical: Sequence[str],
    what: str,
) -> dict[str, Any]:
    """Returns attributes of nodes or edges as columns."""
    if names is None:
        names = sorted({str(key) for data in items for key in data} - set(ignored))
    columns: dict[str, Any] = {}
    for name in names if items else ():
        missing = next((number for number, data in enumerate(items) if name not in data), None)
        if missing is not None:
            raise InvalidInputError(
                f"{what} {missing} has no attribute {name!r}",
                f"set it, for example with networkx.set_{what}_attributes, or choose {what}_attrs",
            )
        values = to_numpy([data[name] for data in items])
        if values.dtype.kind in "iub" and name not in categorical:
            values = values.astype(np.float32)
        columns[name] = values
    return columns


def _features(tables: tuple[Table, ...]) -> Any:
    arrays = tuple(np.asarray(table) for table in tables)
    return None if not arrays else arrays[0] if len(arrays) == 1 else arrays


def _num_columns(tables: Iterable[Table]) -> int:
    return sum(np.asarray(table).shape[1] for table in tables)


def _column_kinds(tables: tuple[Table, ...]) -> list[str]:
    kinds: list[str] = []
    for table in tables:
        array = np.asarray(table)
        kinds += ["real" if array.dtype.kind == "f" else "categorical"] * array.shape[1]
    return kinds


def _rows(tables: tuple[Table, ...], count: int) -> list[list[Any]]:
    lists = [np.asarray(table).tolist() for table in tables]
    return [[cell for table in lists for cell in table[row]] for row in range(count)]


def _names(names: tuple[str, ...], row: list[Any]) -> Sequence[str]:
    return names or [f"x{column}" for column in range(len(row))]


def _equal_tables(left: tuple[Table, ...], right: tuple[Table, ...]) -> bool:
    return len(left) == len(right) and all(map(np.array_equal, left, right))
