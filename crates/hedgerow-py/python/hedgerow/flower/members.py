"""Stable numbers for Flower's nodes."""

from __future__ import annotations

from hedgerow.flower.records import BadMessage


class Members:
    """Maps node ids of Flower to numbers."""

    def __init__(self) -> None:
        #: Flower's round of the latest accepted answer, by node id.
        self.heard: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        #: Nodes that have confirmed their number, by number.
        self._bound: dict[int, int] = {}
        self._there: frozenset[int] = frozenset()

    def see(self, there: list[int]) -> None:
        """Notes the connected nodes. New ones get numbers in the order of their ids."""
        self._there = frozenset(there)
        taken = set(self._numbers.values())
        free = (number for number in range(len(taken) + len(there)) if number not in taken)
        for node_id in there:
            if node_id not in self._numbers:
                self._numbers[node_id] = next(free)

    def number(self, node_id: int) -> int:
        """The number of a node, or the one it gets if it has no partition id."""
        return self._numbers[node_id]

    def is_bound(self, node_id: int) -> bool:
        """Whether the node has confirmed its number."""
        return self._bound.get(self._numbers[node_id]) == node_id

    def check(self, node_id: int, number: int) -> None:
        """Checks a number that a node claims: no other connected node may have it."""
        if node_id not in self._numbers:
            raise BadMessage("nobody asked it")
        owner = self._bound.get(number, node_id)
        if owner != node_id and owner in self._there:
            raise BadMessage(
                f"node {owner} has its number; give every node a partition-id of its own, or none to any"
            )
        if self.is_bound(node_id) and self._numbers[node_id] != number:
            raise BadMessage(f"its number was {self._numbers[node_id]} before")

    def bind(self, node_id: int, number: int) -> None:
        """Binds a checked number to a node."""
        self._numbers[node_id], self._bound[number] = number, node_id
