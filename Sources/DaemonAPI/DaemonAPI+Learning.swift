// The methods of org.pttd.Learning1, and the life of its one session.
import DBus
import Logging
import PTTBus
import Vocabulary

/// A learning session on the bus.
struct LearningSession {
    let path: DBusObjectPath
    /// Whose it is, by its unique name.
    let caller: String
    var properties = LearningReport()
    var isExported = false
}

extension DaemonAPI {
    func startLearning(_ call: DBusMethodCall) async throws -> [DBusValue] {
        let request = try Arguments(call).learningRequest()
        let controls = try accessoryControls
        guard learning?.properties.step.isOver ?? true else {
            throw AccessoryError(.busy, "a button is being learned already; wait until that is over")
        }
        learningNumber &+= 1
        let path = try DBusObjectPath(PTTBus.learningPath(learningNumber))
        // From here on nobody else begins one.
        let old = learning
        learning = LearningSession(path: path, caller: call.sender)
        await take(old)
        do {
            try await hold(.learning, for: call.sender)
            try await controls.startLearning(request)
            // The caller may have left meanwhile.
            guard let session = learning, session.path == path, isHolding(.learning, call.sender) else {
                throw Self.callerLeft
            }
            try await bus.export([try learningExport(session)], at: path)
            learning?.isExported = true
        } catch {
            if learning?.path == path { await endLearning() }
            throw error
        }
        return [.objectPath(path)]
    }

    private func learningExport(_ session: LearningSession) throws(DBusError) -> DBusExport {
        try DBusExport(
            try PTTBus.declaration(of: PTTBus.learningInterface), properties: session.properties.properties,
            starters: [
                "Proceed": action { api, call in
                    guard call.sender == session.caller else {
                        throw DBusErrorReply.accessDenied("only the program that began to learn can go on")
                    }
                    await (try? api.accessoryControls)?.proceedLearning()
                },
                "Cancel": action { api, call in
                    guard call.sender == session.caller else {
                        throw DBusErrorReply.accessDenied("only the program that began to learn can end it")
                    }
                    await api.endLearning()
                },
            ])
    }

    /// Ends the session, over or not, and takes its object back.
    func endLearning() async {
        guard let session = learning else { return }
        learning = nil
        if !session.properties.step.isOver { await (try? accessoryControls)?.cancelLearning() }
        await take(session)
    }

    /// The session of a caller that has left the bus ends.
    func learnerLeft(_ caller: String) async {
        guard learning?.caller == caller else { return }
        await endLearning()
    }

    private func take(_ session: LearningSession?) async {
        guard let session else { return }
        await bus.unexport(at: session.path)
        if learning?.caller != session.caller { await drop(.learning, for: session.caller) }
    }

    /// Where the learning session is.
    public func update(learning properties: LearningReport) {
        guard var session = learning, session.properties != properties else { return }
        session.properties = properties
        learning = session
        guard session.isExported else { return }
        show(properties.properties, of: PTTBus.learningInterface, at: session.path, "learning")
    }
}
