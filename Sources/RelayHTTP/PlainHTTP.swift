// Plain HTTP/1.1 on one TCP port, for this machine or a reverse proxy: reads requests within bounds, and writes their answers.
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore

/// Serves requests, one at a time on each connection.
enum PlainHTTP {
    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Parameter answer: Gets the head, and the body; nil: that is longer than it may be.
    /// - Throws: `ListenFailure`.
    static func serve(
        _ configuration: PlainHTTPConfiguration, as purpose: ListenPurpose, logger: Logger,
        listening: @escaping @Sendable (UInt16) async -> Void,
        answer: @escaping @Sendable (HTTPRequest, [UInt8]?) async -> PlainHTTPAnswer
    ) async throws {
        let decoder = HTTP1Channel.Configuration.DecoderConfiguration(
            maxHeaderFieldSize: configuration.headBytes, maxHeaderListSize: configuration.headBytes,
            maxHeaderFieldCount: 64)
        let channel = HTTP1Channel(
            responder: { request, writer, channel in
                channel.triggerUserOutboundEvent(ConnectionWatch.Event.requestBegan, promise: nil)
                let (body, isRead) = try await read(request.body, configuration)
                let answer = await answer(request.head, body)
                var response = Response(status: .init(code: answer.status), headers: answer.headers)
                response.body = .init(byteBuffer: ByteBuffer(string: answer.body))
                if request.method == .head { response = response.createHeadResponse() }
                try await writer.write(response: response.head, body: response.body)
                if !isRead { channel.close(mode: .all, promise: nil) }
                channel.triggerUserOutboundEvent(ConnectionWatch.Event.requestEnded, promise: nil)
            },
            configuration: HTTP1Channel.Configuration(
                idleTimeout: TimeAmount(configuration.idleTime), httpDecoderConfiguration: decoder))
        try await HTTPListener.serve(
            channel, as: purpose, address: configuration.listenAddress, port: configuration.listenPort,
            admission: .init(
                connections: configuration.connections, connectionsPerAddress: configuration.connectionsPerAddress,
                silence: .zero),
            // One answer at a time is written, however long.
            timeouts: .init(
                requestTime: configuration.requestTime, unreadTime: configuration.requestTime, unreadBytes: nil),
            logger: logger, listening: listening)
    }

    /// Reads a body. `isRead`: false when there is more of it than anybody could have meant.
    private static func read(
        _ body: RequestBody, _ configuration: PlainHTTPConfiguration
    ) async throws -> (bytes: [UInt8]?, isRead: Bool) {
        var bytes: [UInt8] = []
        var count = 0
        for try await buffer in body {
            count += buffer.readableBytes
            if count > max(configuration.unwantedBodyBytes, configuration.bodyBytes) { return (nil, false) }
            if count <= configuration.bodyBytes { bytes += buffer.readableBytesView }
        }
        return (count > configuration.bodyBytes ? nil : bytes, true)
    }
}

extension PlainHTTPAnswer {
    /// The header fields, with those of every answer.
    fileprivate var headers: HTTPFields {
        var headers: HTTPFields = [.cacheControl: "no-store", .xContentTypeOptions: "nosniff"]
        if !body.isEmpty { headers[.contentType] = mediaType }
        for (name, value) in fields {
            if let name = HTTPField.Name(name) { headers[name] = value }
        }
        return headers
    }
}
