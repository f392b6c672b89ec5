"""Graphs and their conversion."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import graph_diffuser as gd
from graph_diffuser import Graph


def test_edges_are_checked() -> None:
    with pytest.raises(gd.Error, match=r"\[2, m\]") as caught:
        Graph(np.zeros((3, 4), dtype=np.int64))
    assert "from_edges" in (caught.value.hint or "")
    with pytest.raises(ValueError, match="nodes from 0 to 5"):
        Graph([[0], [5]], num_nodes=3)
    with pytest.raises(gd.InvalidInputError, match="no nodes"):
        Graph(np.zeros((2, 0), dtype=np.int64))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64])
def test_edges_of_any_integer_type_and_layout_are_accepted(dtype: type) -> None:
    pairs = np.asfortranarray(np.array([[0, 1, 2, 9], [1, 2, 0, 9]], dtype=dtype))[:, :3]
    assert Graph(pairs).edge_index.tolist() == [[0, 1, 2], [1, 2, 0]]


def test_types_of_features_decide_their_kind() -> None:
    graph = Graph.from_edges(
        [[0, 1]], node_features={"x": [0.5, 1.0], "kind": ["a", "b"], "number": [6, 8]}
    )
    assert graph._kinds()[0] == ["real", "categorical", "categorical"]
    assert graph.node_columns == ("x", "kind", "number")
    mixed = Graph.from_edges([[0, 1]], node_features=np.array([["C", 0.1], ["O", 2]], dtype=object))
    assert mixed._kinds()[0] == ["categorical", "real"]
    assert Graph.from_edges([[0, 1]], node_features=[True, False])._kinds()[0] == ["real"]


def test_features_must_be_complete_and_finite() -> None:
    with pytest.raises(gd.Error, match="expected 2 rows"):
        Graph([[0], [1]], 2, node_features=[1.0])
    with pytest.raises(gd.Error, match="row 1 are not finite"):
        Graph([[0], [1]], node_features=[1.0, np.nan])
    with pytest.raises(gd.Error, match="without None"):
        Graph([[0], [1]], node_features=np.array(["a", None], dtype=object))


def test_isolated_nodes_are_kept() -> None:
    assert Graph([[0], [1]], num_nodes=5).num_nodes == 5
    assert Graph([[], []], num_nodes=1).num_edges == 0


def test_graph_can_be_pickled_and_compared() -> None:
    graph = Graph.from_edges([[0, 1]], node_features=["a", "b"], edge_features=[0.5], y=1.5)
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert Graph.from_edges([[0, 1]], y=1.5) != graph


def test_smiles_give_ogb_features() -> None:
    graph = Graph.from_smiles("CCO", y=2.0)
    assert graph.num_nodes == 3
    assert graph.node_features.dtype == np.int64
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    with pytest.raises(gd.Error, match="SMILES"):
        Graph.from_smiles("C(")
    with pytest.raises(gd.Error, match="featurizer"):
        Graph.from_smiles("C", featurizer="morgan")


def test_networkx_graph_keeps_order_attributes_and_targets() -> None:
    nx = pytest.importorskip("networkx")
    source = nx.Graph(y=1.5)
    source.add_node("b", kind="x", size=2)
    source.add_node("a", kind="y", size=1)
    source.add_edge("a", "b", weight=0.5)
    graph = Graph.from_networkx(source)
    assert (graph.num_nodes, graph.directed, graph.y) == (2, False, 1.5)
    assert sorted(graph.edge_index[:, 0].tolist()) == [0, 1]
    assert graph.node_columns == ("kind", "size")
    assert graph._kinds() == (["categorical", "real"], ["real"])
    assert Graph.from_networkx(source, categorical=["size"])._kinds()[0] == ["categorical"] * 2
    assert Graph.from_networkx(source, node_attrs=["size"]).node_columns == ("size",)
    del source.nodes["a"]["size"]
    with pytest.raises(gd.Error, match="node 1 has no attribute 'size'"):
        Graph.from_networkx(source)


def test_networkx_round_trip() -> None:
    pytest.importorskip("networkx")
    graph = Graph.from_edges(
        [[0, 1], [1, 2]], node_features={"x": [0.5, 1.5, 2.5], "kind": ["a", "b", "a"]},
        edge_features={"w": [1.0, 2.0]}, node_y=["p", "q", None],
    )
    back = Graph.from_networkx(graph.to_networkx(), node_attrs=["x", "kind"])
    assert back == graph
    directed = Graph([[0, 1], [1, 0]], node_features=[1, 2])
    assert directed.to_networkx().is_directed()
    assert Graph([[0, 0], [1, 1]]).to_networkx().is_multigraph()


class Data(dict):
    """Has the attributes of torch_geometric.data.Data that are read."""

    def __init__(self, num_nodes: int, **values: object) -> None:
        super().__init__(values)
        self.num_nodes = num_nodes
        self.edge_index = values["edge_index"]


def test_pyg_data_is_read_by_attribute() -> None:
    data = Data(
        4,
        x=np.array([[6], [8], [6], [1]]),
        edge_index=np.array([[0, 1], [1, 0]]),
        edge_attr=np.array([[1], [2]]),
        edge_weight=np.array([0.5, 0.25]),
        y=np.array([[1.5]], dtype=np.float32),
    )
    graph = Graph.from_pyg(data)
    assert (graph.num_nodes, graph.directed, graph.y) == (4, True, 1.5)
    assert graph._kinds() == (["categorical"], ["categorical", "real"])


def test_pyg_labels_and_masks_of_nodes() -> None:
    edges = np.array([[0, 1], [1, 2]])
    masks = {"train_mask": np.array([True, False, False]), "val_mask": np.array([False, True, False])}
    data = Data(3, edge_index=edges, y=np.array([0, 1, 1]), **masks)
    graph = Graph.from_pyg(data)
    assert (graph.node_y, graph.y) == ([0, 1, 1], None)
    assert graph.node_split == ["train", "valid", None]
    classes = Graph.from_pyg(Data(3, edge_index=edges, y=np.array([2])))
    assert (classes.y, classes.node_y) == (2, None)


def test_real_pyg_data() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pyg = pytest.importorskip("torch_geometric.data", reason="torch_geometric is not installed")
    data = pyg.Data(
        x=torch.tensor([[0.5], [1.5]], requires_grad=True),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        y=torch.tensor([1.0]),
        num_nodes=2,
    )
    graph = Graph.from_pyg(data)
    assert graph.y == 1.0
    assert graph.node_features.tolist() == [[0.5], [1.5]]
