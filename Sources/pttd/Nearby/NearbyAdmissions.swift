// Admission to channels nearby that are not open to everybody: this machine's credentials, and its answers as a
// creator.
import Cryptography
import DaemonAPI
import Logging
import MonotonicTime
import Nearby
import PTTBus
import PushToTalkCore
import RelayClient
import RelayProtocol
import RelayServer

/// Somebody who waits to be admitted to a channel that this machine hosts.
struct NearbyNewcomer: Hashable, Sendable {
    let channel: ChannelID
    let member: MemberID
    /// What the newcomer calls itself. Text of a stranger.
    let name: DisplayName

    /// How requests name the newcomer.
    var id: String { "\(channel).\(member)" }
}

extension NearbyNewcomerDescription {
    init(_ newcomer: NearbyNewcomer, _ channel: HostedChannel) {
        self.init(
            id: newcomer.id, name: newcomer.name.text,
            channel: NearbyChannelDescription.id(channel.id, channel.identity.pin), channelName: channel.name.text)
    }
}

extension AdmissionRule {
    /// What the user chose; a code is made by chance.
    init(_ admission: NearbyAdmission) {
        switch admission {
        case .open: self = .open
        case .code: self = .code(InvitationCode())
        case .ask: self = .ask
        }
    }
}

extension NearbyChannels {
    /// Asks the host of a channel for its invitation.
    func invitation(
        to channel: NearbyChannel, code: String?, for caller: BusCaller
    ) async throws(PTChannelError) -> InvitationLink {
        let announcement = channel.announcement
        var credentials = InvitationCredentials(name: creator)
        if let code {
            guard let code = InvitationCode(code) else {
                throw PTChannelError(
                    .unknown, explanation: "a code has \(InvitationCode.digitCount) digits; give it as in '271828'")
            }
            // A code for an open channel is not told to a stranger who asks for none, nor is the join refused for it.
            if announcement.admission == .code { credentials.code = code }
        }
        func question(at places: [RelayPlace]) -> InvitationQuestion {
            InvitationQuestion(
                for: announcement.channel, at: places, pin: announcement.pin, with: credentials, identity: identity,
                loop: loop, logger: logger)
        }
        // Bluetooth is the network of the last resort.
        record.keep(nil, of: announcement.channel)
        let began = Instant.now
        let first = question(at: channel.places)
        do throws(InvitationQuestionError) {
            let link = try await ask(first, for: caller)
            // A network by Bluetooth that is there already, for another channel of the same host.
            if let accessPoint = channel.accessPoint,
                let zone = RelayPlace(host: link.host, port: link.port)?.zone, await bluetooth?.networkInterface == zone
            {
                record.keep(accessPoint, of: link.channel)
            }
            return link
        } catch {
            if let accessPoint = channel.accessPoint, channel.means == [.bluetooth], !error.isAnswer {
                return try await invitation(over: accessPoint, to: channel, question: question, first, caller)
            }
            guard error.isSilence,
                let places = await placesOfNextHost(
                    of: channel, until: began + Self.followingTime, question: first, caller)
            else {
                if channel.means.contains(.bluetooth), !error.isAnswer { await bluetooth?.doubt() }
                throw PTChannelError(.unknown, explanation: Self.words(error, channel))
            }
            logger.info(
                "the host of a channel nearby has left; asking the next one",
                metadata: ["channel": "\(announcement.name)"])
            let second = question(at: places)
            do throws(InvitationQuestionError) { return try await ask(second, for: caller) } catch {
                await ended(second, of: caller)
                throw PTChannelError(.unknown, explanation: "\(error)")
            }
        }
    }

    /// The same over the network that Bluetooth makes, which is made for it.
    private func invitation(
        over accessPoint: BluetoothAccessPoint, to channel: NearbyChannel,
        question: ([RelayPlace]) -> InvitationQuestion, _ first: InvitationQuestion, _ caller: BusCaller
    ) async throws(PTChannelError) -> InvitationLink {
        guard let bluetooth, questions[caller.busName] === first else {
            throw PTChannelError(.unknown, explanation: "\(InvitationQuestionError.cancelled)")
        }
        func given(up why: String) async -> PTChannelError {
            await ended(first, of: caller)
            await endNetwork(to: accessPoint)
            return PTChannelError(.unknown, explanation: why)
        }
        let interface: String
        do throws(BluetoothNetworkError) { interface = try await bluetooth.network(to: accessPoint) } catch {
            await bluetooth.doubt()
            throw await given(
                up: Self.words(.noPlace, channel) + ". " + error.words("\(channel.announcement.creator)", accessPoint))
        }
        let id = NearbyChannelDescription.id(channel)
        let end = Instant.now + Self.networkTime
        var last = InvitationQuestionError.noPlace
        var current = first
        // The kernel takes a second to be sure that the interface's address is nobody else's.
        repeat {
            let places = (found.first { NearbyChannelDescription.id($0) == id }?.places ?? channel.places)
                .filter { $0.zone == interface }
            guard questions[caller.busName] === current else { break }
            current = question(places)
            do throws(InvitationQuestionError) {
                let link = try await ask(current, for: caller)
                record.keep(accessPoint, of: link.channel)
                return link
            } catch {
                last = error
                guard !error.isAnswer else { break }
            }
            await loop.pause(for: .milliseconds(300))
        } while Instant.now < end
        await ended(current, of: caller)
        throw await given(up: "\(last)")
    }

    /// So long after Bluetooth has made a network its machine may be asked.
    private static let networkTime: Duration = .seconds(8)

    /// So long after the question to a host that has gone its successor may be found. The members need less to agree on it.
    private static let followingTime: Duration = .seconds(6)

    private func ask(
        _ question: InvitationQuestion, for caller: BusCaller
    ) async throws(InvitationQuestionError) -> InvitationLink {
        questions[caller.busName] = question
        await browse()
        // A click elsewhere may have taken its place meanwhile.
        guard questions[caller.busName] === question else { throw .cancelled }
        do throws(InvitationQuestionError) {
            let link = try await question.ask()
            await ended(question, of: caller)
            return link
        } catch {
            if !error.isSilence { await ended(question, of: caller) }
            throw error
        }
    }

    private func ended(_ question: InvitationQuestion, of caller: BusCaller) async {
        guard questions[caller.busName] === question else { return }
        questions[caller.busName] = nil
        await browse()
    }

    /// The places of a channel that were not asked, as soon as there are some. The announcement of a host that has gone may outlive it by some
    /// seconds, and its successor announces the same channel.
    ///
    /// - Returns: nil when there are none in time, or nobody waits for the answer any more.
    private func placesOfNextHost(
        of channel: NearbyChannel, until end: Instant, question: InvitationQuestion, _ caller: BusCaller
    ) async -> [RelayPlace]? {
        let id = NearbyChannelDescription.id(channel)
        var places: [RelayPlace] = []
        repeat {
            let now = found.first { NearbyChannelDescription.id($0) == id }
            places = (now?.places ?? []).filter { !channel.places.contains($0) }
            guard places.isEmpty, questions[caller.busName] === question else { break }
            await loop.pause(for: .milliseconds(50))
        } while Instant.now < end
        let isWanted = questions[caller.busName] === question
        await ended(question, of: caller)
        return isWanted && !places.isEmpty ? places : nil
    }

    /// Bluetooth shows a channel whose machine cannot be reached by IP.
    private static func words(_ error: InvitationQuestionError, _ channel: NearbyChannel) -> String {
        switch error {
        case .noPlace, .unreachable: guard channel.means == [.bluetooth] else { return "\(error)" }
        default: return "\(error)"
        }
        return noNetwork(to: "\(channel.announcement.creator)", knowsAccessPoint: channel.accessPoint != nil)
    }

    /// What Bluetooth sees without a network, and what to do.
    ///
    /// - Parameters:
    ///   - creator: Whose machine hosts the channel.
    ///   - knowsAccessPoint: Whether that machine offers Bluetooth as the network.
    static func noNetwork(to creator: String, knowsAccessPoint: Bool) -> String {
        "Bluetooth sees the channel, but no network leads to the machine of \(creator) that hosts it: "
            + "connect both to one Wi-Fi network, or switch on a hotspot on one of them"
            + (!knowsAccessPoint
                ? ", or let Bluetooth be the network (\"systemctl enable --now pttd-pan\" on that machine, and pair the two); then join again"
                : "; then join again")
    }

    func cancelJoining(by caller: BusCaller) {
        questions.removeValue(forKey: caller.busName)?.cancel()
        Task { await browse() }
    }

    /// Something happens to a hosted channel.
    func happened(_ change: NearbyHostChange, to id: ChannelID) {
        switch change {
        case .members: Task { await announce(id) }
        case .asks(let member, let name):
            guard hosts[id] != nil else { return }
            newcomers.append(NearbyNewcomer(channel: id, member: member, name: name))
            publish()
        case .settled(let member):
            newcomers.removeAll { $0.channel == id && $0.member == member }
            publish()
        }
    }

    /// This machine hosts the channel no more.
    func forgetNewcomers(of id: ChannelID) {
        guard newcomers.contains(where: { $0.channel == id }) else { return }
        newcomers.removeAll { $0.channel == id }
        publish()
    }

    func decide(_ isAdmitted: Bool, about id: String, by caller: BusCaller) async throws(PTChannelError) {
        guard let newcomer = newcomers.first(where: { $0.id == id }), let host = hosts[newcomer.channel] else {
            throw PTChannelError(
                .channelNotFound,
                explanation: "that newcomer is no longer waiting; 'pttctl nearby waiting' shows who is")
        }
        await host.server.admit(isAdmitted, newcomer.member, to: newcomer.channel)
        logger.notice(
            isAdmitted ? "newcomer admitted" : "newcomer refused",
            metadata: ["channel": "\(host.channel.name)", "newcomer": "\(newcomer.name)"])
    }
}
