// A server of HTTP on one TCP port, as long as its task or service lives.
import Glibc
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import Synchronization

/// A port that cannot be opened.
public struct ListenFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// What is wrong and what to do.
    public let description: String
}

/// What a port is for, in words for who reads that it cannot be opened.
package struct ListenPurpose: Sendable {
    let failure: String
    let section: String

    /// - Parameters:
    ///   - failure: What cannot be done without the port.
    ///   - section: The table of the configuration that names it.
    package init(_ failure: String, section: String) {
        self.failure = failure
        self.section = section
    }
}

/// A value that may change while an endpoint runs.
package final class Current<Value: Sendable>: Sendable {
    private let value: Mutex<Value>

    /// That value until another is set.
    package init(_ value: Value) { self.value = Mutex(value) }

    /// The value now.
    package func get() -> Value { value.withLock { $0 } }

    /// The value from now on.
    package func set(_ new: Value) { value.withLock { $0 = new } }
}

extension TLSConfiguration {
    /// That of a server with this certificate, the intermediate ones after it, and its key, in PEM.
    package static func server(_ certificatePEM: String, privateKeyPEM: String) throws -> TLSConfiguration {
        let chain = try NIOSSLCertificate.fromPEMBytes(Array(certificatePEM.utf8))
        let key = try NIOSSLPrivateKey(bytes: Array(privateKeyPEM.utf8), format: .pem)
        var tls = TLSConfiguration.makeServerConfiguration(
            certificateChain: chain.map { .certificate($0) }, privateKey: .privateKey(key))
        tls.minimumTLSVersion = .tlsv12
        return tls
    }
}

/// Listens and answers, on one thread.
package enum HTTPListener {
    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Parameters:
    ///   - purpose: What the port is for.
    ///   - admission: How many connections there may be; newcomers take the place of those that have proven nothing.
    ///   - proxies: Addresses whose connections are bounded only by the number of all: reverse proxies.
    ///   - timeouts: The timeouts of a connection.
    ///   - group: The thread, which stays when this returns; nil: one of its own.
    ///   - listening: Told the port, once.
    /// - Throws: `ListenFailure`.
    package static func serve<Child: ServerChildChannel>(
        _ child: Child, as purpose: ListenPurpose, address: String, port: UInt16,
        admission: ConnectionAdmission.Limits, proxies: Set<String> = [], timeouts: ConnectionTimeouts,
        on own: MultiThreadedEventLoopGroup? = nil, logger: Logger,
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
            let reason = String(cString: strerror(error.errnoCode))
            throw ListenFailure(
                description: "\(purpose.failure) on TCP \(address) port \(port): \(reason); "
                    + "see what else runs there, or choose another address with 'listen' in [\(purpose.section)]")
        }
    }

    /// See `AcceptPauseHandler`. A channel that is closed already needs none.
    private static func pauseWhenShort(_ channel: any Channel, logger: Logger) async {
        try? await channel.eventLoop.submit {
            try channel.pipeline.syncOperations.addHandler(AcceptPauseHandler(logger: logger), position: .first)
        }.get()
    }
}
