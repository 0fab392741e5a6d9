// The records of a relay in a cluster: one of them writes, and each serves the channels of its shares.
import Logging
import MonotonicTime
import RelayCluster
import RelayProtocol
import RelayServer
import RelayStore
import Synchronization

/// What a relay knows of its part in its cluster.
struct ClusterPart {
    let node: ClusterNode
    let shares: ClusterShares
    /// The shares that this relay serves.
    var owned: Set<Int> = []
    /// Channels of these whose floors other relays still have.
    var held: Set<ChannelID> = []
    /// Shares that are about to be given away.
    var paused: Set<Int> = []
    /// The channels of each share, those that are not served any more among them; nil: to be read.
    var channels: [Int: Set<ChannelID>]?
    /// Where members reach this relay.
    let place: RelayPlace
    /// Ends the relay, whose records cannot be read: the others serve what it does not.
    let fail: @Sendable (any Error) -> Void
    /// Is told where other relays take links over TLS for the shares that they serve.
    let linkPlaces: @Sendable ([WebLinkAddress?]) -> Void
    /// Tells the operator's pages of this relay, and those of the others; nil: nobody looks.
    var watch: ClusterWatch?
    /// Where the shares are.
    var places: [SharesStateMachine.Place] = []

    /// Where members reach the relay that serves a channel; nil: none does.
    func place(of channel: ChannelID) -> String? {
        guard places.count == ChannelID.shareCount else { return nil }
        return switch places[channel.share()] {
        case .here: place.description
        case .elsewhere(let place, _): place
        case .nowhere: nil
        }
    }
}

/// What has happened since it was looked at last. However slow the disk is, no more waits than there are records.
private final class ClusterNews: Sendable {
    struct Waiting {
        /// These channels have gone to other relays.
        var moved: Set<ChannelID> = []
        /// Other relays have changed these records.
        var records = RecordChanges()
    }

    let signals: AsyncStream<Void>
    private let signal: AsyncStream<Void>.Continuation
    private let waiting = Mutex(Waiting())

    init() { (signals, signal) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1)) }

    func add(_ change: (inout Waiting) -> Void) {
        waiting.withLock { change(&$0) }
        signal.yield()
    }

    func take() -> Waiting {
        waiting.withLock { waiting in
            defer { waiting = Waiting() }
            return waiting
        }
    }
}

extension Registrar {
    /// Whether this relay serves a channel, if that exists.
    func owns(_ channel: ChannelID) -> Bool { part.map { $0.owned.contains(channel.share()) } ?? true }

    /// From now on this relay serves what its part says. The address is for links.
    func join(_ part: ClusterPart, _ server: RelayServer, host: String, port: UInt16) async {
        self.part = part
        setAddress(host: host, port: port)
        let (node, orders) = (part.node, part.shares.orders)
        let news = ClusterNews()
        await server.onMove { channel in news.add { $0.moved.insert(channel) } }
        await node.onRecords { changes in news.add { $0.records.formUnion(changes) } }
        let watch = part.watch
        await node.onRequest { [weak self] request in await self?.answer(request, watch) ?? ([], 0) }
        Task { [weak self] in
            for await _ in news.signals {
                let waiting = news.take()
                if !waiting.moved.isEmpty { await self?.change { try await $0.moved(waiting.moved, server) } }
                if !waiting.records.isEmpty { await self?.change { try await $0.adopt(waiting.records, server) } }
            }
        }
        Task { [weak self] in
            for await order in orders { await self?.change { try await $0.carryOut(order, server) } }
        }
        await part.shares.start()
    }

    /// Does what has happened to the part. What it changes no command may change meanwhile.
    private func change(_ body: @Sendable (isolated Registrar) async throws -> Void) async {
        await inOwnTurn { registrar in
            do { try await body(registrar) } catch { registrar.part?.fail(error) }
        }
    }

    // MARK: Shares

    private func carryOut(_ action: SharesStateMachine.Action, _ server: RelayServer) async throws {
        guard let part else { return }
        switch action {
        case .take(let share, let held):
            self.part?.owned.insert(share)
            self.part?.held.formUnion(held.compactMap { ChannelID($0) })
            try await serve(try channels(of: share), server)
        case .unhold(let channels):
            let channels = channels.compactMap { ChannelID($0) }
            self.part?.held.subtract(channels)
            await server.resume(channels)
        case .pause(let shares):
            self.part?.paused.formUnion(shares)
            let served = try shares.reduce(into: [:]) { $0[$1] = try channels(of: $1) }
            let busy = await server.pause(served.values.flatMap(\.self)) ?? []
            await part.shares.paused(served.mapValues { busy.intersection($0) })
        case .resume(let shares):
            self.part?.paused.subtract(shares)
            await server.resume(try shares.flatMap { try channels(of: $0) })
        case .move(let share, let place):
            self.part?.owned.remove(share)
            self.part?.paused.remove(share)
            let channels = try channels(of: share)
            self.part?.held.subtract(channels)
            await server.move(Array(channels), to: RelayPlace(place) ?? part.place)
        case .places(let places):
            self.part?.places = places
            await server.setPlaces(ChannelPlaces(shares: places.map { ChannelPlaces.Place($0) }))
            part.linkPlaces(places.map { if case .elsewhere(_, let web?) = $0 { WebLinkAddress(web) } else { nil } })
        case .read, .write, .watch, .askForPromises, .askForConsent, .writer, .released, .end: break
        }
    }

    /// The channels of a share that the records have, or have had.
    private func channels(of share: Int) throws -> Set<ChannelID> {
        if part?.channels == nil {
            part?.channels = try store.channels().reduce(into: [:]) { $0[$1.id.share(), default: []].insert($1.id) }
        }
        return part?.channels?[share] ?? []
    }

    /// Serves channels with their members, those among them that are to be served.
    private func serve(_ channels: Set<ChannelID>, _ server: RelayServer) async throws {
        let members = try store.members(ofChannels: channels)
        for id in channels.sorted(by: { $0.description < $1.description }) {
            // One that is still on its way to another relay is served again when it is gone.
            guard await server.configuration(of: id) == nil, let channel = try store.knownChannel(id),
                channel.isServed || channel.isAdded
            else { continue }
            let memberships = (members[id] ?? []).map { ($0.id, $0.membership) }
            let configuration = channel.configuration(token: try store.standingToken(of: id), floors)
            let isServed = await server.serve(
                configuration, members: Dictionary(memberships) { $1 }, isPaused: isPaused(id))
            if !isServed {
                logger.error(
                    "a channel of this relay is not served: it has reached its limit of channels",
                    metadata: ["channel": "\(channel.name)"])
            }
        }
    }

    private func isPaused(_ channel: ChannelID) -> Bool {
        part.map { $0.held.contains(channel) || $0.paused.contains(channel.share()) } ?? false
    }

    /// Channels have gone to other relays. Of those one may have come back meanwhile.
    private func moved(_ channels: Set<ChannelID>, _ server: RelayServer) async throws {
        await part?.shares.left(channels)
        let own = channels.filter(owns)
        if !own.isEmpty { try await serve(own, server) }
    }

    // MARK: Records

    /// Has the relay serve what the records say now.
    private func adopt(_ changes: RecordChanges, _ server: RelayServer) async throws {
        guard part != nil else { return }
        if changes.isEverything {
            part?.channels = nil
            var all = Set(await server.channelConfigurations.map(\.id))
            for share in part?.owned ?? [] { all.formUnion(try channels(of: share)) }
            for id in all { try await adopt(id, server) }
            for (id, members) in try store.members(ofChannels: all.filter(owns)) {
                await adopt(members, of: id, server)
            }
            return
        }
        for id in changes.channels { try await adopt(id, server) }
        for (id, members) in changes.members where owns(id) {
            await adopt(try store.members(members, of: id), of: id, server)
        }
    }

    private func adopt(_ id: ChannelID, _ server: RelayServer) async throws {
        part?.channels?[id.share(), default: []].insert(id)
        let known = await server.configuration(of: id)
        guard let channel = try store.knownChannel(id), channel.isServed || channel.isAdded else {
            if known != nil { await server.remove(id, "the channel was removed") }
            // Nobody waits for the end of a burst on it any more.
            await part?.shares.left([id])
            return
        }
        guard owns(id) else { return }
        guard let known else { return try await serve([id], server) }
        for change in await bring(channel.configuration(token: known.token, floors), from: known, on: server) {
            logger.notice("\(change)")
        }
    }

    private func adopt(_ members: [MemberRecord], of channel: ChannelID, _ server: RelayServer) async {
        let removed = members.filter { $0.revokedAt != nil }.map(\.id)
        if !removed.isEmpty { await server.revoke(removed, from: channel) }
        for member in members where member.revokedAt == nil {
            await server.readmit(member.id, to: channel, as: member.membership)
        }
    }

    // MARK: Requests to the one that writes

    /// Whether another relay of the cluster writes the records.
    var isFollowing: Bool { part.map { !$0.node.writes } ?? false }

    /// Has the relay that writes the records do something.
    func ask(_ request: ClusterRequest) async throws -> ClusterResponse {
        guard let part else { throw RelayStateError(description: "this relay is in no cluster") }
        let answer = try await part.node.ask(request.bytes, isRecord: request.isCommand)
        guard let response = ClusterResponse(bytes: answer) else {
            throw RelayStateError(
                description:
                    "the relay that writes the records has another version; install the same one on all relays",
                mayPass: true)
        }
        return response
    }

    /// What another relay of the cluster asks this one, which writes the records.
    private nonisolated func answer(
        _ request: [UInt8], _ watch: ClusterWatch?
    ) async -> (answer: [UInt8], position: UInt64) {
        guard let request = ClusterRequest(bytes: request) else {
            let error = RelayStateError(description: "the request cannot be read")
            return (ClusterResponse.failed(ForwardedError(error)).bytes, 0)
        }
        // It is not of the records, and does not wait for the disk as they do.
        if case .look(let byteCount) = request {
            return (ClusterResponse.look(await watch?.own(byteCount: byteCount)).bytes, 0)
        }
        let (response, position) = await answerOfRecords(request)
        return (response.bytes, position)
    }

    private func answerOfRecords(_ request: ClusterRequest) async -> (response: ClusterResponse, position: UInt64) {
        let response: ClusterResponse
        do { response = try await answer(request) } catch { response = .failed(ForwardedError(error)) }
        return (response, (try? store.logPlace())?.position ?? 0)
    }

    private func answer(_ request: ClusterRequest) async throws -> ClusterResponse {
        switch request {
        case .push(let push):
            guard let request = push.request, let server else { return .push(.shutDown) }
            return .push(ClusterPushVerdict(await server.push(request), at: .now))
        case .presence(let channels, let question):
            let found = await ownPresence(of: channels.compactMap { ChannelID($0) }, question)
            return .presence(Dictionary(uniqueKeysWithValues: found.map { ($0.key.description, $0.value) }))
        case .status: return .status(try await ownStatus())
        case .look: return .look(nil)  // Answered before.
        case .enrol where isFollowing, .command where isFollowing:
            throw RelayStateError(description: "another relay writes the records now; try again", mayPass: true)
        case .enrol(let channel, let token, let member, let name):
            guard let channel = ChannelID(channel), let token = InvitationToken(token),
                let member = MemberID(bytes: member), let name = DisplayName(name)
            else { throw RelayStateError(description: "the enrolment cannot be read") }
            switch try store.enrol(member, named: name, with: token, in: channel, now: clock()) {
            case .member(let record):
                return .member(
                    priority: record.priority, isListenOnly: record.isListenOnly, isRevoked: record.revokedAt != nil)
            case .refused(let refusal): return .refused(refusal.rawValue)
            }
        case .command(let request): return .command(try await perform(request))
        }
    }

    /// Has the one that writes the records enrol a client.
    func enrolElsewhere(_ enrolment: RelayEnrolment) async -> RelayEnrolmentVerdict {
        do {
            let response = try await ask(
                .enrol(
                    channel: enrolment.channel.description, token: enrolment.token.bytes,
                    member: enrolment.member.bytes, name: enrolment.name.text))
            switch response {
            case .member(let priority, let isListenOnly, let isRevoked):
                return .admitted(
                    RelayMembership(priority: priority, isListenOnly: isListenOnly, isRevoked: isRevoked))
            case .refused(let text):
                return EnrolmentRefusal(rawValue: text)?.verdict ?? .refused(.other, "the invitation does not open it")
            case .failed(let error): throw error
            case .command, .push, .presence, .status, .look: break
            }
        } catch {
            logger.error("a member cannot be enrolled", metadata: ["member": "\(enrolment.member)", "why": "\(error)"])
        }
        return .refused(.relayBusy, "the cluster cannot write its records now")
    }
}

extension ChannelPlaces.Place {
    fileprivate init(_ place: SharesStateMachine.Place) {
        switch place {
        case .here: self = .here
        case .elsewhere(let text, _): self = RelayPlace(text).map { .elsewhere($0) } ?? .nowhere
        case .nowhere: self = .nowhere
        }
    }
}
