"""An OpenAI-compatible HTTP server for one model: `clover-edge serve`, extra `server`.

    from clover_edge.server.live import running
    with running(model) as url:
        ...

Importing this package loads neither FastAPI nor uvicorn; its modules do.
"""
