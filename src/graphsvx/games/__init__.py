"""Cooperative games: coalitions of players to values."""

from graphsvx.games.base import FunctionGame, Game
from graphsvx.games.graph_game import GraphGame

__all__ = ["FunctionGame", "Game", "GraphGame"]
