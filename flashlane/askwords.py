"""Words by which an ask is told from material: how people begin and end what they want done.

Ten languages, one after the other, in one table each. Only verbs of what is done to a text are
here, since a manual also says "open" and "press". Compared with case-folded text.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) for phrase in text.split("|"))


IMPERATIVES = _words(
    # English
    """
    summarise summarize explain describe list find extract translate give tell show write
    rewrite rephrase paraphrase compare contrast analyse analyze review convert generate
    identify name count quote answer enumerate draft suggest propose outline highlight classify
    evaluate assess determine calculate compute verify confirm proofread correct edit improve
    refactor implement fix debug reformat simplify shorten condense brainstorm transcribe redact
    anonymise anonymize annotate critique discuss elaborate clarify define interpret judge recap
    please help check does did could can would should provide reproduce cite locate rank sort
    respond reply return output tldr tl;dr strip add produce remove replace rename split merge
    group arrange organise organize tabulate cross-check double-check flag mark trace port
    migrate optimise optimize document transform polish tidy trim expand continue complete fill
    invent imagine dream grade rate predict recommend advise copy pull pick spot sketch tally
    sum skim weigh roast pitch update delete reorder normalise normalize eli5 use keep avoid
    include ignore limit skip focus don't
    """
    # German
    """
    fasse fass erkläre erklär beschreibe liste nenne finde such suche übersetze übersetz gib
    zeig zeige schreib schreibe vergleiche vergleich analysiere prüfe überprüfe zähle zähl
    zitiere extrahiere korrigiere behebe formuliere beantworte bewerte kürze vereinfache
    erstelle entwirf bitte kannst könntest können könnten würdest hilf sag sage ermittle
    berechne übertrag übertrage pack packe benenne sammle beurteile rechne denk denke schlag
    schlage stell stelle ordne sortiere ersetze entferne lösche füge ergänze vervollständige
    fülle wandle konvertiere kopiere markiere streiche gruppiere sieh schau lies erzähl erzähle
    erläutere skizziere kommentiere mach mache bau baue setz setze bring bringe nimm hol hole
    bestimme bestätige belege begründe diskutiere entscheide empfiehl überleg überlege
    transkribiere anonymisiere schwärze glätte verbessere sei seid verrate verrat nutze verwende
    benutze vermeide ignoriere beachte antworte halte
    """
    # French
    """
    résume résumez résumer explique expliquez décris décrivez listez trouve trouvez extrais
    extrayez traduis traduisez donne donnez montre montrez écris écrivez réécris réécrivez
    comparez analysez vérifie vérifiez compte comptez citez corrige corrigez énumère énumérez
    reformule reformulez proposez indique indiquez peux-tu pouvez-vous pourrais-tu pourriez-vous
    dis dites aide aidez calcule calculez relève relevez veuillez évalue évaluez mets mettez
    passe passez renvoie renvoyez recopie recopiez remplace remplacez raconte racontez rédige
    rédigez complète complétez remplis remplissez supprime supprimez ajoute ajoutez classe
    classez trie triez regroupe regroupez convertis convertissez transforme transformez
    transcris transcrivez copie copiez regarde regardez cherche cherchez repère repérez retrouve
    retrouvez recense recensez dresse dressez fais faites imaginez invente inventez juge jugez
    commente commentez synthétise synthétisez simplifie simplifiez détaille détaillez précise
    précisez confirme confirmez éclaire éclairez reproduis reproduisez faudrait auriez-vous
    aurais-tu merci utilise utilisez évite évitez ignorez réponds répondez garde gardez
    """
    # Spanish
    """
    resume resuma resumir explica describa lista enumera enumere encuentra encuentre busca
    busque extrae extraiga traduce traduzca dame deme dime dígame muestra muestre escribe
    escriba reescribe compara analiza analice verifica verifique comprueba cuenta cuente cita
    corrija indica propón sugiere sugiera puedes podrías podría puede ayúdame calcula haz haga
    evalúa saca saque localiza localice identifica identifique refactoriza devuelve devuelva
    redacta redacte reproduzca copia pon ponga pasa pase convierte convierta transforma
    sustituye reemplaza reemplace elimina elimine quita quite añade añada agrega agregue ordena
    ordene agrupa clasifica clasifique completa rellena rellene confirma detecta señala señale
    menciona relaciona contrapón valora valore opina comenta imagina inventa piensa sintetiza
    sintetice aclara revisa revise arregla implementa simplifica pega anota apunta repasa
    recuenta usa evita ignora responde responda incluye mantén
    """
    # Portuguese
    """
    resumo descreva encontre procure extraia traduza dê me-dê diga mostre escreva reescreva
    analise conte proponha sugira podes pode poderia você ajude-me faça avalie transcreva
    relacione verta reescreve escreve migra migre diz faz passa troca troque manda mande
    aproxime preencha devolve devolva ajuda ajude converta converte substitua remova apague
    acrescente adicione agrupe classifique aponte aponta destaque sintetize avalia crie cria
    elabore monte monta põe ponha pegue separa separe junte conserta conserte refatore gera gere
    vê ve veja situa queria levante levanta reproduza evite inclua mantenha
    """
    # Italian
    """
    riassumi riassuma riassumere spiega spieghi descrivi descriva elenca elenchi trova trovi
    cerca estrai estragga traduci traduca dammi dimmi mostra mostrami scrivi riscrivi confronta
    confronti analizza analizzi verifichi conta conti citi correggi corregga indichi proponi
    suggerisci puoi può potresti potrebbe aiutami calcola fai valuta trascrivi riporta riporti
    ricopia sostituisci togli aggiungi ordina raggruppa classifica compila converti trasforma
    individua segnala evidenzia rileggi sistema immagina commenta giudica sintetizza chiarisci
    illustra racconta metti crea genera prepara redigi controlla conferma di' dì da' fa' vorrei
    rispondi includi mantieni
    """
    # Russian
    """
    кратко изложи изложите суммируй перескажи перескажите резюмируй объясни объясните опиши
    опишите перечисли перечислите найди найдите извлеки извлеките переведи переведите дай дайте
    скажи скажите покажи покажите напиши напишите перепиши сравни сравните проанализируй проверь
    проверьте посчитай посчитайте подсчитай процитируй исправь исправьте назови назовите укажи
    укажите выпиши выпишите предложи предложите оцени оцените составь составьте сделай сделайте
    пожалуйста можешь можете помоги помогите приведи приведите выдели выделите сократи сократите
    отредактируй вставь замени удали отсортируй сгруппируй преобразуй придумай придумайте
    прокомментируй расскажи расскажите подведи посмотри определи определите дополни заполни
    сформулируй посоветуй выбери отметь используй отвечай ответь ответьте избегай
    """
)
INTERROGATIVES = _words(
    """
    what what's when where who who's whom whose which why how is are was were do has have wann
    wo wer wen wem wessen welche welcher welches welchen welchem warum wieso weshalb wie wieviel
    worum ist sind gibt hat quel quelle quels quelles quand où qui que qu quoi pourquoi comment
    combien est-ce y a-t-il qué cuál cuáles cuándo cuando dónde donde quién quiénes cómo cuánto
    cuánta cuántos cuántas hay por para o qual quais quando onde quem como quanto quanta quantos
    quantas porque há quale quali dove chi cosa che come quanti quante perché c'è ci какой какая
    какое какие каков какова когда где кто кого чей почему зачем как сколько что о чём чем есть
    правда ли
    """
)
PREPOSITIONS = _words(
    """
    from in using based given according with for as if without of to after before only aus
    anhand im basierend laut nach auf mit für ohne à dans selon en avec pour sans d según con
    para sin de com em sem segundo secondo dal dalla nel nella per da na из согласно в на по для
    с
    """
)
LAST_WORDS = _words(
    """
    please thanks tldr tl;dr bitte zusammenfassen auflisten aufzählen übersetzen erklären nennen
    zählen zitieren prüfen überprüfen vergleichen beschreiben korrigieren umwandeln extrahieren
    formulieren ausgeben angeben herausfinden umschreiben kürzen zusammenfassung svp stp merci
    gracias obrigado obrigada grazie favor favore пожалуйста спасибо
    """
)
LABELS = _words(
    """
    question questions query q task tasks instruction instructions request ask prompt goal todo
    assignment command frage fragen aufgabe anweisung auftrag tâche consigne demande pregunta
    preguntas tarea instrucciones instrucción pergunta tarefa instruções domanda compito
    richiesta istruzioni вопрос задание задача запрос инструкция 问题 問題 任务 任務 指令 要求
    提问 質問 指示 課題
    依頼 질문 과제 지시 요청
    """
)
CJK_STARTS = tuple(
    _words(
        """
    请 請 帮 幫 把 将 总结 總結 概括 概述 归纳 列出 列举 找出 查找 提取 摘录 翻译 翻譯 解释 解釋
    说明 描述 比较 对比 分析 写 改写 重写 检查 核实 核对 引用 计算 统计 数 校对 修改 修复 实现
    给我 告诉我 谈谈 评价 评估 指出 回答 根据 从 用 什么 谁 哪 何时 为什么 为何 怎么 如何 多少 几
    是否 有没有 上記 以下 次の この文章 要約 翻訳 説明 列挙 抽出 教えて 何 なぜ どの どう いつ 誰
    요약 번역 설명 나열 비교 다음 위 이 문서 무엇 왜 어떻게 누가 언제 어디 몇 얼마
    """
    )
)
CJK_ENDS = tuple(
    _words(
        """
    吗 呢 么 什么 谁 哪里 多少 几个 总结一下 谢谢 ください 下さい お願いします お願い 教えて
    まとめて
    要約して 翻訳して 説明して 列挙して 列挙せよ せよ 示せ 述べよ 抜き出して 挙げて 数えて
    直して 書いて
    比べて ですか ますか でしょうか か は 要約 一覧 해줘 해주세요 주세요 하세요 하시오 해라 줘
    알려줘
    인가요 인가 나요 까요 니까 는가 가요 요약 번역
    """
    )
)
CJK_POLITE = tuple(
    _words(
        """
    请 請 帮我 幫我 ください 下さい お願い 教えて 해줘 주세요 하시오 알려 부탁 是什么 有哪些 是多少
    """
    )
)
FILLERS = _words(
    """
    so ok okay hi hello hey sorry and but then well also und aber hallo na dann bonjour salut
    et mais alors donc hola buenas y pero entonces oi olá e mas então ciao buongiorno ma allora
    dunque привет здравствуйте и а ну
    """
)
"""Words before the one that tells."""
POLITE = _words(
    """
    please pls bitte gern gerne plaît plait svp stp obséquio gentileza favor favore piacere
    пожалуйста
    """
)
SAID_TO = _phrases(
    """
    i need | i only need | i just need | i'd like | i'd be grateful | could you | can you |
    would you | tell me | let me know | i don't need | for me | give me | könntest du |
    kannst du | können sie | könnten sie | ich brauche | ich möchte | ich wüsste | ich hätte |
    sag mir | zeig mir | für mich | pouvez-vous | peux-tu | pourrais-tu | pourriez-vous |
    je vous prie | dis-moi | dites-moi | j'aimerais | je voudrais | il me faut | me suffirait |
    puedes | podrías | podría | quiero | necesito | dime | dígame | te lo agradezco |
    você pode | pode me | poderia | preciso | quero | me diga | me diz | seria ótimo | puoi |
    potresti | potrebbe | vorrei | dimmi | mi serve | мне нужно | мне нужен | мне нужна |
    можешь | можете | подскажи
    """
)
"""Words to whoever answers, anywhere in a short text."""
CLITICS = _words("melo mela melos melas selo sela me le les lo la los las nos mi gli li ne")
"""What Spanish, Portuguese and Italian write behind an imperative: "cuéntame", "elencami"."""
PHRASES = (
    *_phrases(
        """
    i need | i want | i'd like | i would like | i am looking for | i'm looking for | we need |
    let me know | make a | make me | create a | pick out | put together | point out | look up |
    turn this | turn it | sum up | walk me through | your task | go through | pull out |
    work out | ich brauche | ich möchte | ich hätte gern | ich suche |
    je voudrais | j'aimerais | j'ai besoin | il me faut | s'il te | s'il vous
    | quiero | necesito | me gustaría | quisiera | por favor | de qué | quero | preciso |
    gostaria | de que | me dê | me diga | do que | vorrei | voglio | ho bisogno | mi serve |
    per favore | di cosa | fammi | мне нужно | мне нужен | мне нужна | я хочу | хотелось бы
    """
    ),
    *("mach ", "mir ", "fais ", "faites "),
)
FOLLOW_UPS = _phrases(
    """
    and | what about | how about | what of | same for | the same | now | also | und |
    was ist mit | wie sieht es mit | jetzt | das gleiche | auch | et | qu'en est-il | et pour |
    même chose | maintenant | y | qué hay de | qué tal | lo mismo | ahora | también | e |
    e quanto | o mesmo | agora | também | e per | che ne dici | lo stesso | ora | anche | а | и
    | то же | теперь | ещё | что насчёт | 那 | 那么 | 还有 | 另外 | 同样 | では | じゃあ |
    それと | 同じ | 次は | 그럼
    | 그리고 | 그러면 | 또
    """
)
TAG_WORDS = _phrases(
    """
    question | query | task | instruction | prompt | request | user_ | ask | goal | frage |
    aufgabe | anweisung | consigne | pregunta | tarea | pergunta | tarefa | domanda | compito |
    вопрос | задание | 问题 | 任务 | 質問 | 指示 | 질문 | 지시
    """
)
