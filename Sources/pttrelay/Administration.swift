// How the commands about members reach the records: through the running relay, or directly if none runs.
import ArgumentParser
import Files
import Logging
import Logs
import Reactor
import RelayProtocol
import RelayServer
import Settings
import Terminal

extension RelayOptions {
    /// Runs the requests one after another. An error is printed on standard error and ends the program.
    func administer(_ body: @escaping @Sendable (Administration) async throws -> Void) throws {
        do {
            let settings = try settings()
            let administration = Administration(
                directory: stateDirectory(settings), host: host ?? settings.host,
                web: settings.web.flatMap { $0.place(port: $0.listen.port) },
                floors: Floors(rules: settings.floorRules, retentions: settings.retentions),
                channelsMaximum: settings.limits.channels)
            try EventLoop.runProgram(named: "pttrelay") { _ in try await body(administration) }
        } catch let exit as ExitCode {
            throw exit
        } catch let error as ValidationError {
            throw error
        } catch let error as SettingsError {
            Console.complain("pttrelay: \(error)")
            throw configurationMistake
        } catch {
            Console.complain("pttrelay: \(error)")
            throw ExitCode.failure
        }
    }
}

/// Asks a relay, or acts in its place.
struct Administration {
    let directory: String
    /// The name in links; nil: that of the relay's last start.
    let host: String?
    /// Where the relay takes links over TLS, in links; nil: nowhere.
    let web: WebPlace?
    /// The settings of the configuration for the floors, for a relay that does not run.
    let floors: Floors
    /// Channels that it may serve, likewise.
    let channelsMaximum: Int

    /// Asks for one thing.
    ///
    /// - Throws: what is wrong and what to do, also when the relay refused.
    func ask(_ request: AdministrationRequest) async throws -> AdministrationResponse {
        let response = try await answer(to: request)
        if case .failed(let why) = response { throw RelayStateError(description: why) }
        return response
    }

    /// The relay's answer, or that of its records; waits for a relay that has the records and is about to accept commands.
    private func answer(to request: AdministrationRequest) async throws -> AdministrationResponse {
        let deadline = ContinuousClock.now + AdministrationLimits.time
        while true {
            if let answer = try AdministrationClient.ask(request, in: directory) { return answer }
            do {
                return try await alone(request)
            } catch let error as FileError {
                // It has waited for the records for a while (`RelayState.lockTimeout`).
                guard case .inUse = error.cause else { throw error }
                guard ContinuousClock.now < deadline else {
                    throw RelayStateError(
                        description:
                            "the relay in \(directory) is running, but accepts no commands: it is starting, or another command "
                            + "uses its records; try again")
                }
            }
        }
    }

    private func alone(_ request: AdministrationRequest) async throws -> AdministrationResponse {
        let logger = Logger(label: "pttrelay") { LineLogHandler(label: $0, level: .notice) }
        let registrar = try Registrar(
            state: RelayState.existing(directory, logger: logger), host: host, web: web, floors: floors,
            channelsMaximum: channelsMaximum, logger: logger)
        return await registrar.answer(request)
    }

    /// All channels, in the order of their names.
    func channels() async throws -> [AdministrationResponse.ChannelLine] {
        var lines: [AdministrationResponse.ChannelLine] = []
        var next: String?
        repeat {
            guard case .channels(let page, let following) = try await ask(.channels(after: next)) else { break }
            lines += page
            next = following
        } while next != nil
        return lines
    }
}
