"""The management interface of one node, put together."""

from aiohttp import web
from aiohttp.typedefs import Handler

from e2e.couchbase_emulator.model.cluster import Cluster, Node
from e2e.couchbase_emulator.rest import buckets, collections, control, permissions, pools, settings, setup, users
from e2e.couchbase_emulator.rest.http import NOT_FOUND_TEXT, bind

ROUTES = [
    route
    for module in (pools, setup, buckets, collections, users, permissions, settings, control)
    for route in module.ROUTES
]


@web.middleware
async def _unknown_routes(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return web.Response(status=404, text=NOT_FOUND_TEXT)
    except web.HTTPMethodNotAllowed:
        return web.Response(status=405, text="Method Not Allowed")


def management_application(cluster: Cluster, node: Node) -> web.Application:
    """The application that serves the management port of `node`."""
    application = web.Application(middlewares=[_unknown_routes])
    for route in ROUTES:
        application.router.add_route(route.method, route.path, bind(route, cluster, node))
    return application
