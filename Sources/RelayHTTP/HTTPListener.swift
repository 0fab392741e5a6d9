// A server of HTTP on one TCP port, as long as its task or service lives.
import Glibc
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix

/// Why a port cannot be listened on.
package struct ListenFailure: Error {
    package let reason: String
}

/// Listens and answers, on one thread.
package enum HTTPListener {
    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Parameters:
    ///   - admission: How many connections there may be; newcomers take the place of those that have proven nothing.
    ///   - proxies: Addresses whose connections are bounded only by the number of all: reverse proxies.
    ///   - timeouts: The timeouts of a connection.
    ///   - group: The thread, which stays when this returns; nil: one of its own.
    ///   - listening: Told the port, once.
    /// - Throws: `ListenFailure`.
    package static func serve<Child: ServerChildChannel>(
        _ child: Child, address: String, port: UInt16, admission: ConnectionAdmission.Limits,
        proxies: Set<String> = [],
        timeouts: ConnectionTimeouts, on own: MultiThreadedEventLoopGroup? = nil, logger: Logger,
        listening: @escaping @Sendable (UInt16) async -> Void
    ) async throws {
        let group = own ?? MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var quiet = logger
        // What the server says of itself is said better by the relay.
        quiet.logLevel = max(.warning, logger.logLevel)
        let gate = ConnectionGate(admission, proxies: proxies)
        let server = Server(
            childChannelSetup: AdmittedChannel(base: child, gate: gate, timeouts: timeouts),
            configuration: ServerConfiguration(address: .hostname(address, port: Int(port))),
            onServerRunning: { channel in
                gate.opened(channel)
                await pauseWhenShort(channel, logger: logger)
                await listening(channel.localAddress?.port.flatMap { UInt16(exactly: $0) } ?? 0)
            }, eventLoopGroup: group, logger: quiet)
        // Cancelling the server's task would drop connections that it has accepted and not served yet, and NIO ends the program
        // for each of them (`NIOAsyncWriter`). So the gate closes everything, and the server returns when it has served them.
        let serving = Task { try await server.run() }
        let result = await withTaskCancellationHandler {
            await serving.result
        } onCancel: {
            gate.end()
        }
        if own == nil { try await group.shutdownGracefully() }
        do {
            try result.get()
        } catch let error as IOError {
            // Its own description has the names of functions in it.
            throw ListenFailure(reason: String(cString: strerror(error.errnoCode)))
        }
    }

    /// See `AcceptPauseHandler`. A channel that is closed already needs none.
    private static func pauseWhenShort(_ channel: any Channel, logger: Logger) async {
        try? await channel.eventLoop.submit {
            try channel.pipeline.syncOperations.addHandler(AcceptPauseHandler(logger: logger), position: .first)
        }.get()
    }
}
