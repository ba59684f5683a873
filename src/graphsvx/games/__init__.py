"""Cooperative games: coalitions of players to values."""

from graphsvx.games.base import FunctionGame, Game
from graphsvx.games.base import require_memory as require_memory
from graphsvx.games.graph_game import GraphGame
from graphsvx.games.lookup_game import LookupGame as LookupGame

__all__ = ["FunctionGame", "Game", "GraphGame"]
